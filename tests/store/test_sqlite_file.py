"""The SQLite store as a file among other files and processes."""

import json
import os
import shutil
import sqlite3
import stat
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from store_processes import Child, until

from outlast.errors import SettingsError, StoreBroken, StoreTooNew, StoreUnavailable
from outlast.store import fork
from outlast.store.address import store_at
from outlast.store.sqlite import store as module
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import Enlist, Submit, Sweep, Swept
from outlast.testing.conformance.harness import NOBODY

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # what is tested is just that


def submit(id: str) -> Submit:
    return Submit(id, "flow", "[]", id, "seed")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outlast.db"


@pytest.fixture
def store(path):
    store = SQLiteStore(path)
    store.open()
    yield store
    store.close()


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def look(path, statement="SELECT id FROM runs ORDER BY pk"):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement).fetchall()


# -- files


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_only_the_owner_may_read_the_database_and_what_lies_beside_it(path, umask):
    before = os.umask(umask)
    try:
        store = SQLiteStore(path)
        store.open()
        store.hold("w")
        store.listen(lambda: None)
        store.commit([submit("r")])
        beside = path.with_name("outlast.db.d")
        files = [path, path.with_name("outlast.db-wal"), path.with_name("outlast.db-shm")]
        assert {mode(file) for file in files} == {0o600}
        assert mode(beside) == 0o700
        inside = list(beside.iterdir())
        assert len(inside) == 4  # gate, room, a lock, a bell
        assert {mode(file) for file in inside} == {0o600}
        store.close()
    finally:
        os.umask(before)


def test_missing_folders_are_made(tmp_path):
    path = tmp_path / "a" / "b c" / "outlast.db"
    store = store_at(f"sqlite:///{path}")
    store.open()
    store.commit([submit("r")])
    store.close()
    assert look(path) == [("r",)]


def test_a_closed_store_leaves_only_the_database_and_the_turnstile(path):
    store = SQLiteStore(path)
    store.open()
    store.hold("w")
    store.listen(lambda: None)
    store.let_go("w")
    store.close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["outlast.db", "outlast.db.d"]
    assert sorted(p.name for p in path.with_name("outlast.db.d").iterdir()) == ["gate", "room"]


def test_ids_never_become_paths(store, path):
    store.commit([submit("../../escape"), submit("/etc/x")])
    names = {p.name for p in path.parent.rglob("*")}
    assert names == {"outlast.db", "outlast.db-wal", "outlast.db-shm", "outlast.db.d", "gate", "room"}


# -- files that are something else


def test_a_file_that_is_not_a_database_is_refused_and_stays_as_it_is(path):
    path.write_bytes(b"my letters\n" * 1000)
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match="not a SQLite database"):
        SQLiteStore(path).open()
    assert path.read_bytes() == before


def test_somebody_elses_database_is_refused_and_stays_as_it_is(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match="not one of Outlast's"):
        SQLiteStore(path).open()
    assert path.read_bytes() == before
    assert not path.with_name("outlast.db-wal").exists()


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    store = SQLiteStore(path)
    store.open()
    store.close()
    assert look(path) == []


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_newer_schema_is_refused_and_stays_as_it_is(path, journal):
    store = SQLiteStore(path)
    store.open()
    store.commit([submit("r")])
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute(f"PRAGMA journal_mode = {journal}")
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match="99"):
        SQLiteStore(path).open()
    assert path.read_bytes() == before
    assert look(path) == [("r",)]


def test_a_folder_at_the_path_is_unavailable_not_a_crash(tmp_path):
    with pytest.raises(StoreUnavailable):
        SQLiteStore(tmp_path).open()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable):
        SQLiteStore(tmp_path / "file" / "outlast.db").open()


def test_a_store_that_could_not_be_opened_can_be_opened_later(path):
    path.write_bytes(b"not yet a database" * 100)
    store = SQLiteStore(path)
    descriptors = open_descriptors()
    for _ in range(5):
        with pytest.raises(StoreBroken):
            store.open()
    assert open_descriptors() == descriptors
    path.unlink()
    store.open()
    store.commit([submit("r")])
    store.close()


# -- migrations

ADD_COLUMN = "ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';\nCREATE INDEX colours ON runs (colour);\n"


def test_an_older_store_is_migrated_forward_and_keeps_what_it_holds(store, path, monkeypatch):
    store.commit([submit("r")])
    store.close()
    steps = module._migrations()
    monkeypatch.setattr(module, "_migrations", lambda: [*steps, ADD_COLUMN, "CREATE TABLE extra (x);"])
    newer = SQLiteStore(path)
    newer.open()
    newer.commit([submit("r2")])
    newer.close()
    assert look(path, "SELECT id, colour FROM runs") == [("r", "blue"), ("r2", "blue")]
    assert look(path, "PRAGMA user_version") == [(len(steps) + 2,)]
    monkeypatch.undo()
    with pytest.raises(StoreTooNew):
        SQLiteStore(path).open()


def test_a_migration_that_fails_changes_nothing(store, path, monkeypatch):
    store.commit([submit("r")])
    store.close()
    steps = module._migrations()
    schema = look(path, "SELECT sql FROM sqlite_schema")
    monkeypatch.setattr(
        module, "_migrations", lambda: [*steps, ADD_COLUMN + "INSERT INTO nowhere VALUES (1);\n"]
    )
    with pytest.raises(StoreBroken):
        SQLiteStore(path).open()
    assert look(path, "PRAGMA user_version") == [(len(steps),)]
    assert look(path, "SELECT sql FROM sqlite_schema") == schema
    monkeypatch.undo()
    store.open()
    assert store.run("r") is not None


def test_a_step_that_succeeded_stays_when_the_next_one_fails(store, path, monkeypatch):
    store.close()
    steps = module._migrations()
    monkeypatch.setattr(module, "_migrations", lambda: [*steps, ADD_COLUMN, "nonsense;"])
    with pytest.raises(StoreUnavailable):
        SQLiteStore(path).open()
    assert look(path, "PRAGMA user_version") == [(len(steps) + 1,)]


# -- many processes

OPEN_AND_SUBMIT = """
store = SQLiteStore(sys.argv[1])
say("ready")
sys.stdin.readline()
store.open()
store.commit([submit(sys.argv[2]), submit("shared")])
say("done")
store.close()
"""


def test_ten_processes_open_one_new_file_at_once(path):
    children = [Child(OPEN_AND_SUBMIT, path, n) for n in range(10)]
    try:
        for child in children:
            assert child.line() == "ready"
        for child in children:
            child.tell()
        for child in children:
            assert child.line() == "done"
            assert child.wait() == 0
    finally:
        for child in children:
            child.__exit__()
    assert {id for (id,) in look(path)} == {*map(str, range(10)), "shared"}


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_look_at_a_file_that_becomes_a_store_just_now_sees_none_or_one(path, after):
    """The look is three statements; another process makes the store after this one of them."""
    path.touch()

    class Rows(list):
        def fetchone(self):
            return self[0] if self else None

    class Watched:
        statements = 0

        def execute(self, statement):
            found = Rows(db.execute(statement).fetchall())
            self.statements += 1
            if self.statements == after:
                store = SQLiteStore(path)
                store.open()
                store.close()
            return found

    with closing(sqlite3.connect(path)) as db:
        assert module._version_of(Watched(), str(path)) in (0, len(module._migrations()))


def test_what_a_killed_process_committed_is_there(path):
    script = """
store = SQLiteStore(sys.argv[1])
store.open()
for n in range(100000):
    store.commit([submit(f"r{n}")])
    say(n)
"""
    with Child(script, path) as child:
        for _ in range(50):
            last = int(child.line())
        child.process.kill()
        child.wait()
        while True:  # whatever it had acknowledged before it died
            try:
                last = int(child.line())
            except AssertionError:
                break
    store = SQLiteStore(path)
    store.open()
    assert all(store.run(f"r{n}") for n in range(last + 1))
    store.close()


def test_a_killed_worker_is_dead_long_before_its_lease_ends(store):
    script = """
store = SQLiteStore(sys.argv[1])
store.open()
store.hold("mortal")
store.commit([Enlist("mortal", "host", os.getpid(), 3600.0), submit("r")._replace(worker="mortal")])
say("holds")
sys.stdin.readline()
"""
    with Child(script, store.path) as child:
        assert child.line() == "holds"
        assert store.dead_workers() == []
        assert store.commit([Sweep()]) == [NOBODY]
        child.process.kill()
        killed = time.monotonic()
        until(lambda: store.dead_workers() == ["mortal"], timeout=10)
        assert time.monotonic() - killed < 5
        time.sleep(1)
        assert store.commit([Sweep()]) == [Swept(("r",), (), ("mortal",))]
        swept, (entry,) = store.now(), store.journal(store.run("r").pk)
        facts = json.loads(entry.value)
        assert facts["by"] == "lock"
        since = time.monotonic() - killed
        assert since - 0.1 < swept - facts["seen"] < since + 1, (
            "its heart beat until it was killed, not until the sweep"
        )
    assert not [p for p in store.path.with_name("outlast.db.d").iterdir() if "mortal" in p.name]


# -- the file goes away


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_removed_or_replaced_while_in_use_is_broken(store, path, how):
    store.commit([submit("r")])
    path.unlink()
    if how == "replaced":
        other = SQLiteStore(path.with_name("other.db"))
        other.open()
        other.close()
        path.with_name("other.db").rename(path)
    with pytest.raises(StoreBroken, match="removed or replaced"):
        store.commit([submit("lost")])


def test_the_folder_beside_can_be_removed_while_in_use(store, path):
    store.listen(lambda: None)
    store.hold("w")
    shutil.rmtree(path.with_name("outlast.db.d"))
    assert store.commit([submit("r"), Enlist("w", "host", 1, 60.0)])[0].new
    assert store.commit([Sweep()]) == [NOBODY]
    assert store.run("r") is not None


# -- fork


def forked(action) -> int:
    """What `action` returned in a forked child, as its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = action()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_child_cannot_use_its_parents_store(store):
    store.commit([submit("r")])

    def use_it() -> int:
        refused = 0
        for use in (lambda: store.commit([submit("child")]), lambda: store.run("r")):
            try:
                use()
            except StoreUnavailable:
                refused += 1
        store.close()
        return refused

    assert forked(use_it) == 2
    assert store.commit([submit("after")])[0].new
    assert store.run("child") is None


def test_a_child_can_open_the_store_anew_and_nothing_it_commits_is_lost(path):
    """SQLite's record of locks is inherited, its locks are not: the parent's close would remove the child's log."""
    store = SQLiteStore(path)
    store.open()
    store.commit([submit("parent")])
    to_child, to_parent = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            store.open()
            store.commit([submit("child")])
            os.write(to_parent[1], b"!")
            os.read(to_child[0], 1)
            store.commit([submit("after the parent's close")])
            status = 0
        finally:
            os._exit(status)
    os.close(to_parent[1])  # a child that fails is read as the end
    os.close(to_child[0])
    try:
        assert os.read(to_parent[0], 1) == b"!"
        store.close()
        os.write(to_child[1], b"!")
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        os.close(to_parent[0])
        os.close(to_child[1])
    assert look(path) == [("parent",), ("child",), ("after the parent's close",)]


def test_a_fork_in_the_middle_of_writing_harms_neither(path):
    store = SQLiteStore(path)
    store.open()
    stop = threading.Event()
    written = []

    def write() -> None:
        while not stop.is_set():
            store.commit([submit(f"r{len(written)}")])
            written.append(1)

    thread = threading.Thread(target=write)
    thread.start()

    def write_too(turn: int) -> int:
        own = SQLiteStore(path)
        own.open()
        own.commit([submit(f"child{turn}")])
        return 0 if own.run(f"child{turn}") else 1

    try:
        for turn in range(20):
            before = len(written)
            until(lambda before=before: len(written) > before)
            assert forked(lambda turn=turn: write_too(turn)) == 0
    finally:
        stop.set()
        thread.join()
    store.close()
    ids = {id for (id,) in look(path)}
    assert ids == {f"r{n}" for n in range(len(written))} | {f"child{n}" for n in range(20)}
    assert look(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_child_forked_inside_a_transaction_says_that_it_cannot_know_the_file(store, path, monkeypatch):
    monkeypatch.setattr(fork, "PATIENCE", 0.05)

    def open_anew() -> int:
        try:
            SQLiteStore(path).open()
        except StoreUnavailable:
            return 7
        return 1

    with store._writing:  # as if a signal handler forked in the middle of a commit
        assert forked(open_anew) == 7
    assert store.commit([submit("r")])[0].new


CHILD_OF_A_WORKER = """
store = SQLiteStore(sys.argv[1])
store.open()
store.listen(lambda: None)
store.hold("mortal")
store.commit([Enlist("mortal", "host", os.getpid(), 3600.0), submit("r")._replace(worker="mortal")])
pid = os.fork()
if pid == 0:
    say("forked", os.getpid())
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_child_does_not_keep_its_parents_worker_or_bell_alive(store, path):
    with Child(CHILD_OF_A_WORKER, path) as parent:
        survivor = int(parent.line().split()[1])
        try:
            assert store.dead_workers() == []
            parent.process.kill()
            parent.wait()
            os.kill(survivor, 0)  # the child lives on
            until(lambda: store.dead_workers() == ["mortal"], timeout=10)
            assert store.commit([Sweep()]) == [Swept(("r",), (), ("mortal",))]
            assert not list(path.with_name("outlast.db.d").glob("bell-*"))
        finally:
            os.kill(survivor, 9)


# -- addresses


@pytest.mark.parametrize(("query", "level"), [("", 2), ("?synchronous=full", 2), ("?synchronous=NORMAL", 1)])
def test_the_address_says_how_durable_a_commit_is(path, query, level):
    store = store_at(f"sqlite:///{path}{query}")
    store.open()
    assert isinstance(store, SQLiteStore)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (level,)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "outlast.db",
        "/data/outlast.db",
        "mysql://host/db",
        "sqlite://",
        "sqlite:///",
        "sqlite://outlast.db",
        "sqlite://host/outlast.db",
        "sqlite:///a%00b.db",
        "sqlite:///a.db?synchronous=off",
        "sqlite:///a.db?mode=ro",
    ],
)
def test_an_address_that_no_store_answers_to_is_a_settings_error(address):
    with pytest.raises(SettingsError):
        store_at(address)


def test_a_path_may_have_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for address, name in (
        ("sqlite:///plain.db", "plain.db"),
        ("sqlite:///with%20space%3F.db", "with space?.db"),
        ("sqlite:///file%3Ax.db", "file:x.db"),
        ("sqlite:///%F0%9F%8C%8A.db", "🌊.db"),
    ):
        store = store_at(address)
        store.open()
        store.close()
        assert (tmp_path / name).is_file()


def test_a_relative_path_stays_where_it_was_when_the_program_changes_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = store_at("sqlite:///outlast.db")
    store.open()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert store.commit([submit("r")])[0].new
    store.close()


# -- closing


def test_to_close_waits_for_a_commit_that_is_under_way(path):
    store = SQLiteStore(path)
    store.open()
    store.commit([submit("r"), Enlist("w", "host", 1, 60.0)])
    done: list[object] = []

    def write() -> None:
        for n in range(10_000):
            try:
                store.commit([submit(f"r{n}-{m}") for m in range(20)])
            except StoreUnavailable as error:
                done.append(error)
                return
            done.append(n)

    thread = threading.Thread(target=write)
    thread.start()
    until(lambda: len(done) > 3)
    store.close()
    thread.join()
    assert isinstance(done[-1], StoreUnavailable)
    assert look(path, "SELECT count(*) FROM runs") == [(1 + 20 * (len(done) - 1),)]


def test_an_unexpected_fault_leaves_no_transaction_open(store, monkeypatch):
    def fail(worker: str) -> bool:
        raise PermissionError(worker)

    store.commit([Enlist("w", "host", 1, 60.0)])
    monkeypatch.setattr(store._presence, "is_dead", fail)
    with pytest.raises(StoreUnavailable):
        store.commit([submit("r"), Sweep()])
    with pytest.raises(KeyError):
        store.commit([submit("r"), "not a verb"])
    monkeypatch.undo()
    assert store.run("r") is None
    assert store.commit([submit("r"), Sweep()])[0].new
