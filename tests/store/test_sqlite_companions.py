"""Another program removes, replaces or truncates `-wal` or `-shm` while a store is open."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from store_processes import Child

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.commands import RegisterWorker, Renew, Submit
from outlast.store.rows import RunQuery
from outlast.store.sqlite.files import SharedFiles
from outlast.store.sqlite.store import SQLiteStore


def submit(id: str, size: int = 0) -> Submit:
    return Submit(id, "flow", "x" * size, id, "seed")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outlast.db"


@pytest.fixture
def store(path):
    store = SQLiteStore(path)
    store.open()
    store.acquire_liveness("w")
    store.commit(
        [RegisterWorker("w", "host", 1, 1000.0), *(submit(f"r{number}") for number in range(5))]
    )
    yield store
    store.close()


def log_of(path):
    return path.with_name("outlast.db-wal")


def index_of(path):
    return path.with_name("outlast.db-shm")


def replace(file):
    copy = file.with_name("copy")
    shutil.copy2(file, copy)
    copy.replace(file)


def ids_in(path) -> set[str]:
    store = SQLiteStore(path)
    store.open()
    try:
        return {row.id for row in store.runs(RunQuery())}
    finally:
        store.close()


def run_outside(script: str, path) -> None:
    """Run a program that has nothing to do with this process: SQLite shares its locks within a process."""
    subprocess.run(
        [sys.executable, "-c", f"import os, sqlite3\npath = {str(path)!r}\n{script}"], check=True
    )


REMOVALS = {
    "remove -wal": lambda path: log_of(path).unlink(),
    "remove -shm": lambda path: index_of(path).unlink(),
    "remove both": lambda path: (log_of(path).unlink(), index_of(path).unlink()),
    "rename -wal": lambda path: log_of(path).rename(f"{path}.away"),
    "rename the folder": lambda path: path.parent.rename(f"{path.parent}-away"),
    "replace -wal": lambda path: replace(log_of(path)),
    "replace -shm": lambda path: replace(index_of(path)),
    "empty -wal": lambda path: os.truncate(log_of(path), 0),
    "truncate -wal": lambda path: os.truncate(log_of(path), 5000),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_commit_fails_once_a_companion_file_is_gone(path, store, removal):
    REMOVALS[removal](path)
    for _ in range(2):
        with pytest.raises(StoreBroken, match="while in use") as caught:
            store.commit([submit("late")])
        assert caught.value.gone


@pytest.mark.parametrize("removal", REMOVALS)
def test_commit_fails_if_a_companion_file_disappears_during_it(path, store, removal):
    class Removing:
        """A connection whose COMMIT comes just after the removal."""

        def __init__(self, db):
            self._db = db

        def __getattr__(self, name):
            return getattr(self._db, name)

        def execute(self, statement, *values):
            if statement == "COMMIT":
                REMOVALS[removal](path)
            return self._db.execute(statement, *values)

    store._db = Removing(store._db)
    with pytest.raises(StoreBroken, match="while in use"):
        store.commit([submit("late")])


def test_sweep_notices_a_removed_companion_file(path, store):
    log_of(path).unlink()
    with pytest.raises(StoreBroken, match=r"outlast\.db-wal was removed or replaced"):
        store.dead_workers()


READ_ALONG = """
store = SQLiteStore(sys.argv[1])
store.open()
store.run("r")
say("reading")
sys.stdin.readline()
"""


@pytest.mark.parametrize("removal", ["remove -wal", "remove -shm", "remove both"])
def test_what_was_acknowledged_before_the_removal_is_saved_at_once(path, store, removal):
    """Even if another process still has the database open, and neither ever closes it."""
    with Child(READ_ALONG, path) as child:
        child.line()
        REMOVALS[removal](path)
        with pytest.raises(StoreBroken):
            store.commit([submit("late")])
        copy = shutil.copy(path, path.with_name("copy.db"))
    with closing(sqlite3.connect(copy)) as db:
        assert {id for (id,) in db.execute("SELECT id FROM runs")} == {
            f"r{number}" for number in range(5)
        }


@pytest.mark.parametrize("removal", ["remove -wal", "remove -shm", "remove both"])
def test_no_process_opens_the_database_until_the_worker_has_closed_it(path, removal):
    script = """
store = SQLiteStore(sys.argv[1])
store.open()
store.acquire_liveness("w")
store.commit([RegisterWorker("w", "host", 1, 1000.0), submit("r")])
say("ready")
sys.stdin.readline()
store.close()
say("closed")
sys.stdin.readline()
"""
    with Child(script, path) as child:
        assert child.line() == "ready"
        REMOVALS[removal](path)
        with pytest.raises(StoreUnavailable, match="removed while worker w was using it"):
            SQLiteStore(path).open()
        with pytest.raises(StoreUnavailable, match="removed while worker w was using it"):
            SQLiteStore(path).versions()
        child.tell()
        assert child.line() == "closed"
        assert ids_in(path) == {"r"}


def test_closing_does_not_touch_a_log_that_another_program_has_made(path, store):
    for number in range(300):
        store.commit([submit(f"s{number}", 1000)])
    store.recover()  # from here on the database has what the other program needs
    store.commit([submit("only in the old log")])
    REMOVALS["remove both"](path)
    run_outside(
        """
db = sqlite3.connect(path, isolation_level=None)
db.execute("UPDATE runs SET reason = 'written outside'")
db.execute("PRAGMA wal_checkpoint(PASSIVE)")
db.execute("UPDATE runs SET reason = reason || ' twice'")
os._exit(0)
""",
        path,
    )
    with pytest.raises(StoreBroken):
        store.commit([submit("late")])
    store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT DISTINCT reason FROM runs").fetchall() == [
            ("written outside twice",)
        ]


def test_closing_does_not_copy_a_truncated_log(path, store):
    store.recover()
    for number in range(50):
        store.commit([submit(f"s{number}", 1000)])
    os.truncate(log_of(path), 0)
    with pytest.raises(StoreBroken, match="truncated"):
        store.commit([submit("late")])
    store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert ids_in(path) == {f"r{number}" for number in range(5)}


# -- what SQLite and others may do


def test_log_that_is_moved_away_and_back_is_accepted(path, store):
    away = log_of(path).rename(f"{path}.away")
    away.rename(log_of(path))
    store.commit([submit("more")])
    assert store.run("more") is not None


@pytest.mark.parametrize(
    "script",
    [
        "db = sqlite3.connect(path); db.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall(); db.close()",
        "db = sqlite3.connect(path); db.execute('PRAGMA wal_checkpoint(RESTART)').fetchall(); db.close()",
        "db = sqlite3.connect(path); db.execute('SELECT * FROM runs').fetchall(); db.close()",
        "db = sqlite3.connect(f'file:{path}?mode=ro', uri=True); db.execute('SELECT * FROM runs').fetchall(); db.close()",
        "db = sqlite3.connect(path); db.execute('VACUUM'); db.close()",
        """
db = sqlite3.connect(path, timeout=0)
try:
    db.execute('PRAGMA journal_mode = DELETE').fetchall()
except sqlite3.OperationalError:
    db.close()
""",
        """
from outlast.store.sqlite.store import SQLiteStore
store = SQLiteStore(path)
store.open()
store.recover()
store.close()
""",
    ],
    ids=["truncate", "restart", "read", "read-only", "vacuum", "journal mode", "recover"],
)
def test_what_sqlite_does_to_its_files_raises_no_alarm(path, store, script):
    for number in range(3):
        run_outside(script, path)
        store.dead_workers()
        for more in range(2):
            store.commit([submit(f"more{number}{more}", 50_000)])
    store.close()
    assert len(ids_in(path)) == 11


def test_log_that_begins_again_from_its_start_raises_no_alarm(path, store):
    """As it does after a checkpoint, by several connections, with a limit to its size."""
    other = SQLiteStore(path)
    other.open()
    for each in (store, other):
        each._db.execute("PRAGMA journal_size_limit = 20000")
        each._db.execute("PRAGMA wal_autocheckpoint = 10")
    for number in range(200):
        (store, other)[number % 3 == 0].commit([submit(f"more{number}", number % 7 * 3000)])
    other.close()
    store.commit([submit("last")])
    assert store.run("last") is not None


# -- a process opens the database at the moment of the removal

OPEN_AT_REMOVAL = """
from outlast.errors import StoreUnavailable

class Unlucky(SQLiteStore):
    def _connect(self, path, **options):
        while len(sys.argv) > 2:
            os.unlink(sys.argv.pop())
        return super()._connect(path, **options)

try:
    Unlucky(sys.argv[1]).open()
except StoreUnavailable as error:
    say(error)
else:
    say("opened")
"""


@pytest.mark.parametrize(
    "removed", [(log_of,), (index_of,), (log_of, index_of)], ids=["-wal", "-shm", "both"]
)
def test_opening_process_leaves_no_log_of_its_own_beside_a_live_worker(path, store, removed):
    """A new log would keep the worker from saving what is only in the old one."""
    with Child(OPEN_AT_REMOVAL, path, *(name(path) for name in removed)) as child:
        assert "removed while worker w was using it" in child.line()
        with pytest.raises(StoreBroken):
            store.commit([submit("late")])
    store.close()
    assert ids_in(path) == {f"r{number}" for number in range(5)}


OPEN_AND_COMMIT = """
from outlast.errors import StoreUnavailable
store = SQLiteStore(sys.argv[1])
try:
    store.open()
    store.commit([submit("new")])
except StoreUnavailable as error:
    say(error)
else:
    say("committed")
sys.stdin.readline()
store.close()
"""


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_no_process_joins_a_log_that_was_replaced_by_an_older_copy(path, store, suffix):
    """Its commits would follow frames that the copy lacks, and be lost with the index of the old log."""
    copy, original = path.with_name("copy"), path.with_name(path.name + suffix)
    run_outside(f"import shutil; shutil.copy({str(original)!r}, {str(copy)!r})", path)
    for _ in range(3):
        store.commit([Renew("w", 1000.0)])  # the database does not grow
    copy.replace(original)
    with Child(OPEN_AND_COMMIT, path) as child:
        assert "removed or replaced while other processes were using it" in child.line()
    with pytest.raises(StoreBroken):
        store.commit([submit("late")])
    with Child(OPEN_AND_COMMIT, path) as child:  # the worker has let go of its files
        assert child.line() == "committed"
        child.tell()
        assert child.wait() == 0
    store.close()
    assert ids_in(path) == {f"r{number}" for number in range(5)} | {"new"}


@pytest.mark.parametrize(
    ("owner", "name"), [(SharedFiles, "check"), (SQLiteStore, "_connect")], ids=["before", "after"]
)
def test_process_can_open_the_database_while_the_last_user_closes_it(
    path, monkeypatch, owner, name
):
    """SQLite removes `-wal` and `-shm` with the last connection, before or after the first check."""
    original = getattr(owner, name)

    def close_first(*arguments, **options):
        monkeypatch.setattr(owner, name, original)
        leaving.tell()
        assert leaving.wait() == 0
        return original(*arguments, **options)

    with Child(OPEN_AND_COMMIT, path) as leaving:
        assert leaving.line() == "committed"
        monkeypatch.setattr(owner, name, close_first)
        joining = SQLiteStore(path)
        joining.open()
    joining.commit([submit("joined")])
    with Child(OPEN_AND_COMMIT, path) as third:
        assert third.line() == "committed"
        third.tell()
        assert third.wait() == 0
    joining.close()
    assert ids_in(path) == {"new", "joined"}
