"""The disk is full, read-only, damaged or failing: nothing acknowledged is lost, and what is unknown ends exactly once."""

import os
import shutil
import signal
import sqlite3
import subprocess
import threading
from contextlib import closing

import pytest
from store_processes import Child, until

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.protocol import CommitUnknown
from outlast.store.rows import RunQuery
from outlast.store.sqlite import store as module
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import (
    VERSION,
    Ack,
    Append,
    AskDrain,
    Cancel,
    Claim,
    Drain,
    Enlist,
    Forget,
    Keep,
    Leave,
    Limit,
    Prune,
    Record,
    Refused,
    Release,
    Renew,
    Report,
    Resume,
    Retry,
    Send,
    Settle,
    Submit,
    SubmitMany,
    Sweep,
    Touch,
    Wait,
)
from outlast.testing.conformance import HandClock

ROOT = os.geteuid() == 0


def submit(id: str, size: int = 0) -> Submit:
    return Submit(id, "flow", "x" * size, id, "seed")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outlast.db"


@pytest.fixture
def opened():
    """Opens stores, and closes them at the end."""
    stores = []

    def open_at(path, **options):
        store = SQLiteStore(path, **options)
        store.open()
        stores.append(store)
        return store

    yield open_at
    for store in stores:
        store.close()


def check_file(path):
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# -- a full disk


@pytest.fixture
def small_disk(tmp_path):
    if not ROOT:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_loses_nothing_and_the_store_goes_on_when_there_is_room(small_disk, opened):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_500_000)
    store = opened(small_disk / "outlast.db")
    acknowledged = []
    with pytest.raises(StoreUnavailable, match="disk is full"):
        for number in range(100):
            store.commit([submit(f"r{number}", 50_000)])
            acknowledged.append(number)
    assert acknowledged
    for _ in range(3):  # it stays full, and says so each time
        with pytest.raises(StoreUnavailable, match="disk is full"):
            store.commit([submit("more", 500_000)])
    assert {row.id for row in store.runs(RunQuery())} == {f"r{number}" for number in acknowledged}
    ballast.unlink()
    assert store.commit([submit("more", 50_000), submit("r0")])[0].new
    store.close()
    check_file(small_disk / "outlast.db")
    again = opened(small_disk / "outlast.db")
    assert {row.id for row in again.runs(RunQuery())} == {"more", *(f"r{number}" for number in acknowledged)}


def test_a_store_cannot_be_made_on_a_full_disk_and_says_so(small_disk):
    left = shutil.disk_usage(small_disk).free
    (small_disk / "ballast").write_bytes(b"x" * (left - 8192))
    store = SQLiteStore(small_disk / "outlast.db")
    with pytest.raises(StoreUnavailable):
        store.open()
    (small_disk / "ballast").unlink()
    store.open()
    assert store.commit([submit("r")])[0].new
    store.close()


FILE_SIZE_LIMIT = """
import resource
from outlast.errors import StoreError
from outlast.store.protocol import CommitUnknown
store = SQLiteStore(sys.argv[1])
store.open()
store.commit([submit("first")])
size = os.path.getsize(sys.argv[1] + "-wal")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200_000, hard))
number, errors = 0, []
while not errors:
    verb = submit(f"r{number}")._replace(args="x" * 30_000)
    try:
        store.commit([verb])
        number += 1
    except StoreError as error:
        errors.append(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
if isinstance(errors[0], CommitUnknown):
    store.recover()
say(type(errors[0]).__name__, number, store.commit([verb])[0].new)
"""


def test_a_limit_on_the_size_of_files_loses_nothing(path, opened):
    with Child(FILE_SIZE_LIMIT, path) as child:
        error, acknowledged, new = child.line().split()
        child.process.kill()
        child.wait()
    assert error in ("StoreUnavailable", "CommitUnknown")
    assert new == "True"
    check_file(path)
    ids = {row.id for row in opened(path).runs(RunQuery())}
    assert ids == {"first", *(f"r{number}" for number in range(int(acknowledged) + 1))}


# -- read-only


def test_a_read_only_place_is_unavailable_and_says_so(tmp_path, opened):
    place = tmp_path / "place"
    opened(place / "outlast.db").close()
    if ROOT:  # whom modes do not stop
        view = tmp_path / "view"
        view.mkdir()
        bound = subprocess.run(["mount", "--bind", place, view], capture_output=True, check=False)
        if bound.returncode:
            pytest.skip("this machine does not let us mount")
        subprocess.run(["mount", "-o", "remount,bind,ro", view], check=True)
    else:
        view = place
        (place / "outlast.db").chmod(0o400)
        place.chmod(0o500)
    try:
        with pytest.raises(StoreUnavailable, match=r"read-only|not permitted"):
            SQLiteStore(view / "outlast.db").open()
        with pytest.raises(StoreUnavailable, match=r"read-only|not permitted"):
            SQLiteStore(view / "new.db").open()
    finally:
        if ROOT:
            subprocess.run(["umount", "-l", view], check=True)
        else:
            place.chmod(0o700)


# -- damage


@pytest.mark.parametrize("damage", ["garbage", "zeros"])
def test_a_damaged_page_is_broken_and_says_so(path, opened, damage):
    store = opened(path)
    store.commit([submit(f"r{number}", 1000) for number in range(500)])
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(1, size // 4096):
            file.seek(page * 4096)
            file.write((b"\xa5" if damage == "garbage" else b"\0") * 4096)
    with pytest.raises(StoreBroken, match="damaged"):
        store = opened(path)
        store.commit([submit("new")])
    with pytest.raises(StoreBroken, match="damaged"):
        opened(path).runs(RunQuery(limit=1000))


@pytest.mark.parametrize("change", ["DROP TABLE runs", "ALTER TABLE runs RENAME COLUMN fence TO height"])
def test_a_table_that_somebody_removed_or_changed_is_broken_and_no_waiting_mends_it(path, opened, change):
    store = opened(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute(change)
    with pytest.raises(StoreBroken, match="is not there, or not whole"):
        store.commit([submit("new")])
    with pytest.raises(StoreBroken, match="is not there, or not whole"):
        store.run("new")


def test_a_damaged_header_is_broken(path, opened):
    opened(path).close()
    with path.open("r+b") as file:
        file.write(b"Not a format 3\0\0")
    with pytest.raises(StoreBroken, match="not a SQLite database"):
        opened(path)


def test_a_torn_log_loses_only_what_was_not_acknowledged(path, opened):
    """The tail of the log is garbage, as after a power cut in the middle of a write."""
    script = """
store = SQLiteStore(sys.argv[1])
store.open()
for n in range(20):
    store.commit([submit(f"r{n}")])
say("done")
sys.stdin.readline()
"""
    with Child(script, path) as child:
        child.line()
        child.process.kill()
        child.wait()
    with path.with_name("outlast.db-wal").open("ab") as log:
        log.write(os.urandom(4096 + 24 + 100))
    assert {row.id for row in opened(path).runs(RunQuery())} == {f"r{number}" for number in range(20)}


# -- a lock that somebody keeps

KEEP_LOCK = """
import sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
say("locked")
sys.stdin.readline()
db.execute("ROLLBACK")
say("free")
sys.stdin.readline()
"""


def test_a_lock_kept_by_another_program_is_unavailable_until_it_lets_go(path, opened, monkeypatch):
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.2)
    store = opened(path)
    with Child(KEEP_LOCK, path) as child:
        assert child.line() == "locked"
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="holds its lock"):
                store.commit([submit("r")])
        assert store.run("r") is None  # reading goes on
        child.tell()
        assert child.line() == "free"
        assert store.commit([submit("r")])[0].new


def test_a_reader_that_stays_holds_up_recovery_only(path, opened, monkeypatch):
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.1)
    store = opened(path)
    store.commit([submit("r")])
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM runs").fetchall()
        store.commit([submit("r2")])
        with pytest.raises(StoreUnavailable, match="another program reads"):
            store.recover()
        assert store.commit([submit("r3")])[0].new
        reader.execute("ROLLBACK")
    store.recover()
    assert path.with_name("outlast.db-wal").stat().st_size == 0


# -- a commit whose outcome is unknown


class FaultyCommit:
    """A connection whose COMMIT reports a failed fsync, having taken effect ("landed") or not ("lost")."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.plan: list[str | None] = []

    def __getattr__(self, name):
        return getattr(self._db, name)

    def execute(self, statement, *values):
        if statement == "COMMIT" and self.plan and (fault := self.plan.pop(0)):
            self._db.execute("COMMIT" if fault == "landed" else "ROLLBACK")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self._db.execute(statement, *values)


@pytest.fixture
def faulty(path, opened):
    store = opened(path, clock=HandClock(), synchronous="normal")
    store._db = FaultyCommit(store._db)
    return store


def persist(store, *verbs):
    """As the writer does it: until it is definite."""
    for _ in range(10):
        try:
            return store.commit(verbs)
        except CommitUnknown:
            store.recover()
    raise AssertionError("it never became definite")


@pytest.mark.parametrize("fault", ["landed", "lost"])
def test_a_failed_commit_is_unknown_and_committing_it_again_is_once(faulty, fault):
    faulty._db.plan = [fault]
    with pytest.raises(CommitUnknown):
        faulty.commit([submit("r")])
    faulty.recover()
    assert (faulty.run("r") is not None) == (fault == "landed")
    assert faulty.commit([submit("r")])[0].new
    assert [row.id for row in faulty.runs(RunQuery())] == ["r"]


def story(store):
    """Every verb, one commit after another: what they said, as far as a repeat must say the same."""
    clock, said = store._clock, []

    def do(*verbs):
        outcomes = persist(store, *verbs)
        clock.forward(1)
        said.append(
            [
                None if isinstance(verb, (Cancel, Drain, Sweep, Prune)) else [row.id for row in outcome]
                if isinstance(verb, Claim) else outcome.new if isinstance(verb, Submit)
                else [one.new for one in outcome] if isinstance(verb, SubmitMany) else outcome
                for verb, outcome in zip(verbs, outcomes, strict=True)
            ]
        )  # fmt: skip
        return outcomes

    store.hold("w")
    store.hold("w2")
    do(Enlist("w", "host", 1, 1000.0), Enlist("w2", "host", 1, 15.0))
    one = do(submit("one")._replace(worker="w"), submit("two"), submit("three"))[0].row
    do(*(Record(one.pk, seq, one.fence, "step", str(seq), 1.0) for seq in (1, 2)), Send("one", "m", "1", "1"))
    two, three = do(Claim("w2", "c1", limit=5), Keep("s", "k1", {"a": "1"}, version=0))[0]
    do(
        Record(two.pk, 1, two.fence, "step", "k", 1.0),
        Wait(two.pk, two.fence, ("m",)),
        Send("two", "m", "1", "1"),
    )
    do(Release(one.pk, one.fence, "drain"), Settle(three.pk, three.fence, "failed", reason="why"))
    do(Retry("three", "t1"), Cancel("two", "stop"), Send("one", "m", "1", "2"), Send("one", "m", "2", "2"))
    (one,) = do(Claim("w", "c2", ids=("one",)), Renew("w", 1000.0))[0]
    do(Settle(one.pk, one.fence, "parked", reason="who knows"), Keep("s", "k2", {"b": "2"}, version=1))
    do(Resume("one", "t2"), submit("four"), Touch("s", 500.0), Keep("s", "k3", {"b": None}, version=1))
    turns = {"turns": Append(("1", "2", "3"), keep=2)}
    do(Keep("s", "k4", {"b": "3"}, appends=turns, record=Record(two.pk, 2, two.fence, "session", "k", 1.0)))
    conflict = Record(two.pk, 3, two.fence, "session", "k", 1.0)
    do(Keep("s", "k5", {"b": "4"}, version=1, record=conflict), Keep("s", "k6", {}, appends=turns))
    do(
        Forget("s", "f1", record=Record(two.pk, 4, two.fence, "session", "k", 1.0)),
        Keep("s", "k7", {"d": "1"}, ttl=20.0),
    )
    assert said[-3:] == [[3], [Refused(VERSION, "3"), 4], [None, 1]]
    for _ in range(5):
        clock.forward(6)
        do(Sweep())
    do(Cancel("four", "not needed"), Prune(clock.now, sessions=True))
    assert store.session("s") is None
    do(*[Claim("w", "c3", ids=("two",)), Keep("s2", "k3", {"c": "3"})])
    assert said[-1] == [["two"], 1]  # it was swept
    items = [
        submit(f"item{number}")._replace(workflow="", queue="items", attempts_max=1) for number in range(4)
    ]
    do(SubmitMany(tuple(items[:3])), SubmitMany((items[0], items[3])), Limit("items", 9, 3))
    acked, nacked, asked = do(Claim("w", "c4", queues=("items",), limit=5))[0]
    do(
        Ack(acked.pk, acked.fence, "items"),
        Release(nacked.pk, nacked.fence, "no", failed=True),
        Cancel(asked.id, "stop"),
    )
    (one,) = do(Claim("w", "c5", ids=("one",)), Ack(acked.pk, acked.fence, "items"))[0]
    do(
        Release(one.pk, one.fence, "waits", waiting=True, waits=("m",), seen=2),
        Release(asked.pk, asked.fence, "drain"),
    )
    do(Retry(nacked.id, "t3"), Send("one", "m", "3", "3"), Renew("w", 1000.0))
    do(Claim("w", "c6", limit=5))
    assert said[-1] == [["three", "item3", "one", nacked.id]]
    do(AskDrain("w", "a new version"), Drain("w", "a new version", (store.run("one").fence,)))
    do(Leave("w"), Report("w", "{}"), Enlist("w3", "host", 1, 1000.0))
    do(Claim("w3", "c7", limit=2))
    assert said[-1] == [["two", "one"]]
    do(Prune(clock.now - 1))
    return said


def everything(store):
    """What the store holds, but for the numbers of fences and runs: a repeat may use one up."""
    runs, sessions = (
        [pk for (pk,) in store._reader.execute(f"SELECT pk FROM {table} ORDER BY pk")]
        for table in ("runs", "sessions")
    )

    def plain(table, name, value):
        if name == "session" or (table, name) == ("sessions", "pk"):
            return sessions.index(value)
        if name in ("pk", "run"):
            return runs.index(value)
        return (value > 0) - (value < 0) if name == "fence" else value

    tables = {}
    for table in (
        "runs", "entries", "messages", "workers", "sessions", "session_fields", "session_items", "queues", "pulse",
        "drains", "recoveries",
    ):  # fmt: skip
        rows = store._reader.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in rows.description]
        tables[table] = [
            {name: plain(table, name, value) for name, value in zip(names, row, strict=True)}
            for row in rows.fetchall()
        ]
    return tables


def test_whichever_commit_is_unknown_the_story_ends_the_same(tmp_path, opened):
    def tell(name, plan):
        store = opened(tmp_path / f"{name}.db", clock=HandClock(), synchronous="normal")
        store._db = FaultyCommit(store._db)
        store._db.plan = list(plan)
        said = story(store)
        held = everything(store)
        store.close()
        return said, held

    expected = tell("faultless", [])
    commits = len(expected[0])
    for position in range(commits):
        for fault in ("landed", "lost"):
            got = tell(f"{fault}-{position}", [None] * position + [fault])
            assert got == expected, (fault, position)
    for number, plan in enumerate(
        (["landed"] * 200, ["lost", "landed"] * 100, ["lost", "lost", None, "landed"] * 60)
    ):
        repeats = [fault for commit in range(commits) for fault in (*plan[commit : commit + 2], None)]
        assert tell(f"many-{number}", repeats) == expected


FAILING_SYNC = """
from outlast.store.protocol import CommitUnknown
from outlast.errors import StoreUnavailable
store = SQLiteStore(sys.argv[1])
store.open()
store.hold("w")
row = None
unknown = unavailable = 0
for n in range(30):
    verbs = [submit(f"r{n}"), Send("r0", "m", str(n), "1")]
    if row is None:
        verbs += [Enlist("w", "host", 1, 600.0), submit("own")._replace(worker="w")]
    else:
        verbs += [Record(row.pk, n, row.fence, "step", str(n), 1.0)]
    recover, tries = False, 0
    while True:
        tries += 1
        assert tries < 100, "it never became definite"
        try:
            if recover:
                store.recover()
            outcomes = store.commit(verbs)
            break
        except CommitUnknown:
            unknown, recover = unknown + 1, True
        except StoreUnavailable:
            unavailable += 1
    assert outcomes[0].new, outcomes
    assert outcomes[1] is None, outcomes
    if row is None:
        row = outcomes[3].row
    else:
        assert outcomes[2] is None, outcomes
    say("acknowledged", n)
say("end", unknown, unavailable, os.getpid())
sys.stdin.readline()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("when", ["12..14", "15+3", "20..60+7"])
def test_when_fdatasync_fails_what_was_acknowledged_stays_and_the_rest_ends_once(
    path, opened, tmp_path, when
):
    inject = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", "trace=fdatasync,fsync",
              "-e", f"inject=fdatasync,fsync:error=EIO:when={when}")  # fmt: skip
    with Child(FAILING_SYNC, path, wrap=inject) as child:
        try:
            first = child.line()
        except AssertionError:
            pytest.skip("this machine does not let us trace")
        assert first == "acknowledged 0"
        for number in range(1, 30):
            assert child.line() == f"acknowledged {number}"
        _, unknown, unavailable, pid = child.line().split()
        os.kill(int(pid), signal.SIGKILL)  # the program itself, not strace
        child.wait()
    assert int(unknown) > 0, unavailable
    store = opened(path)
    assert {row.id for row in store.runs(RunQuery())} == {"own", *(f"r{number}" for number in range(30))}
    own, r0 = store.run("own"), store.run("r0")
    assert [(entry.seq, entry.key) for entry in store.journal(own.pk)] == [(n, str(n)) for n in range(1, 30)]
    assert [(m.number, m.id) for m in store.messages(r0.pk)] == [(n + 1, str(n)) for n in range(30)]
    store.close()
    check_file(path)


def test_a_reader_never_sees_a_commit_that_was_lost(faulty):
    """Reading goes on in another thread while commits fail."""
    stop, seen = threading.Event(), set()

    def read():
        while not stop.is_set():
            seen.update(row.id for row in faulty.runs(RunQuery(limit=1000)))

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(50):
        faulty._db.plan = ["lost"]
        with pytest.raises(CommitUnknown):
            faulty.commit([submit(f"lost{number}")])
        faulty.recover()
        faulty.commit([submit(f"kept{number}")])
    until(lambda: "kept49" in seen)
    stop.set()
    thread.join()
    assert seen == {f"kept{number}" for number in range(50)}
