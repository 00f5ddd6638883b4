"""Commits on SQLite whose outcome is unknown."""

import os
import shutil
import signal
import sqlite3
import subprocess
import threading

import pytest
from sqlite_fault_tools import check_file, submit
from store_processes import Child

from outlast.store.commands import (
    VERSION,
    Ack,
    Append,
    Cancel,
    Claim,
    DeleteSession,
    DeregisterWorker,
    Drain,
    ExtendSession,
    Prune,
    Record,
    Refused,
    RegisterWorker,
    Release,
    Renew,
    RequestDrain,
    Resume,
    Retry,
    Send,
    SetQueueLimits,
    Settle,
    SetWaiting,
    StoreDrainReport,
    Submit,
    SubmitMany,
    Sweep,
    UpdateSession,
)
from outlast.store.protocol import CommitUnknown
from outlast.store.rows import RunQuery
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.conformance import ManualClock
from support.waiting import wait_until


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
    store = opened(path, clock=ManualClock(), synchronous="normal")
    store._db = FaultyCommit(store._db)
    return store


def persist(store, *commands):
    """As the writer does it: until it is definite."""
    for _ in range(10):
        try:
            return store.commit(commands)
        except CommitUnknown:
            store.recover()
    raise AssertionError("it never became definite")


@pytest.mark.parametrize("fault", ["landed", "lost"])
def test_failed_commit_is_unknown_and_its_repeat_is_applied_once(faulty, fault):
    faulty._db.plan = [fault]
    with pytest.raises(CommitUnknown):
        faulty.commit([submit("r")])
    faulty.recover()
    assert (faulty.run("r") is not None) == (fault == "landed")
    assert faulty.commit([submit("r")])[0].new
    assert [row.id for row in faulty.runs(RunQuery())] == ["r"]


def story(store):
    """Every command, one commit after another: what they said, as far as a repeat must say the same."""
    clock, said = store._clock, []

    def do(*commands):
        outcomes = persist(store, *commands)
        clock.forward(1)
        said.append(
            [
                None if isinstance(command, (Cancel, Drain, Sweep, Prune)) else [row.id for row in outcome]
                if isinstance(command, Claim) else outcome.new if isinstance(command, Submit)
                else [one.new for one in outcome] if isinstance(command, SubmitMany) else outcome
                for command, outcome in zip(commands, outcomes, strict=True)
            ]
        )  # fmt: skip
        return outcomes

    store.acquire_liveness("w")
    store.acquire_liveness("w2")
    do(RegisterWorker("w", "host", 1, 1000.0), RegisterWorker("w2", "host", 1, 15.0))
    one = do(submit("one")._replace(worker="w"), submit("two"), submit("three"))[0].row
    do(
        *(Record(one.pk, seq, one.fence, "step", str(seq), 1.0) for seq in (1, 2)),
        Send("one", "m", "1", "1"),
    )
    two, three = do(Claim("w2", "c1", limit=5), UpdateSession("s", "k1", {"a": "1"}, version=0))[0]
    do(
        Record(two.pk, 1, two.fence, "step", "k", 1.0),
        SetWaiting(two.pk, two.fence, ("m",)),
        Send("two", "m", "1", "1"),
    )
    do(Release(one.pk, one.fence, "drain"), Settle(three.pk, three.fence, "failed", reason="why"))
    do(
        Retry("three", "t1"),
        Cancel("two", "stop"),
        Send("one", "m", "1", "2"),
        Send("one", "m", "2", "2"),
    )
    (one,) = do(Claim("w", "c2", ids=("one",)), Renew("w", 1000.0))[0]
    do(
        Settle(one.pk, one.fence, "parked", reason="who knows"),
        UpdateSession("s", "k2", {"b": "2"}, version=1),
    )
    do(
        Resume("one", "t2"),
        submit("four"),
        ExtendSession("s", 500.0),
        UpdateSession("s", "k3", {"b": None}, version=1),
    )
    turns = {"turns": Append(("1", "2", "3"), keep=2)}
    do(
        UpdateSession(
            "s",
            "k4",
            {"b": "3"},
            appends=turns,
            record=Record(two.pk, 2, two.fence, "session", "k", 1.0),
        )
    )
    conflict = Record(two.pk, 3, two.fence, "session", "k", 1.0)
    do(
        UpdateSession("s", "k5", {"b": "4"}, version=1, record=conflict),
        UpdateSession("s", "k6", {}, appends=turns),
    )
    do(
        DeleteSession("s", "f1", record=Record(two.pk, 4, two.fence, "session", "k", 1.0)),
        UpdateSession("s", "k7", {"d": "1"}, ttl=20.0),
    )
    assert said[-3:] == [[3], [Refused(VERSION, "3"), 4], [None, 1]]
    for _ in range(5):
        clock.forward(6)
        do(Sweep())
    do(Cancel("four", "not needed"), Prune(clock.now, sessions=True))
    assert store.session("s") is None
    do(*[Claim("w", "c3", ids=("two",)), UpdateSession("s2", "k3", {"c": "3"})])
    assert said[-1] == [["two"], 1]  # it was swept
    items = [
        submit(f"item{number}")._replace(workflow="", queue="items", attempts_max=1)
        for number in range(4)
    ]
    do(
        SubmitMany(tuple(items[:3])),
        SubmitMany((items[0], items[3])),
        SetQueueLimits("items", 9, 3),
    )
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
    do(RequestDrain("w", "a new version"), Drain("w", "a new version", (store.run("one").fence,)))
    do(DeregisterWorker("w"), StoreDrainReport("w", "{}"), RegisterWorker("w3", "host", 1, 1000.0))
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


def test_any_unknown_commit_leads_to_the_same_state(tmp_path, opened):
    def tell(name, plan):
        store = opened(tmp_path / f"{name}.db", clock=ManualClock(), synchronous="normal")
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
        repeats = [
            fault for commit in range(commits) for fault in (*plan[commit : commit + 2], None)
        ]
        assert tell(f"many-{number}", repeats) == expected


FAILING_SYNC = """
from outlast.store.protocol import CommitUnknown
from outlast.errors import StoreUnavailable
store = SQLiteStore(sys.argv[1])
store.open()
store.acquire_liveness("w")
row = None
unknown = unavailable = 0
for n in range(30):
    commands = [submit(f"r{n}"), Send("r0", "m", str(n), "1")]
    if row is None:
        commands += [RegisterWorker("w", "host", 1, 600.0), submit("own")._replace(worker="w")]
    else:
        commands += [Record(row.pk, n, row.fence, "step", str(n), 1.0)]
    recover, tries = False, 0
    while True:
        tries += 1
        assert tries < 100, "it never became definite"
        try:
            if recover:
                store.recover()
            outcomes = store.commit(commands)
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


def can_trace() -> bool:
    """Return whether strace is installed and the machine lets it trace a child."""
    command = [shutil.which("strace"), "-qq", "-o", os.devnull, "true"]
    return command[0] is not None and subprocess.run(command, check=False).returncode == 0


@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here")
@pytest.mark.parametrize("when", ["12..14", "15+3", "20..60+7"])
def test_failing_fdatasync_loses_no_acknowledged_commit_and_repeats_none(
    path, opened, tmp_path, when
):
    inject = ("strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", "trace=fdatasync,fsync",
              "-e", f"inject=fdatasync,fsync:error=EIO:when={when}")  # fmt: skip
    opened(path).close()  # the child's first commits are its own, not migrations
    with Child(FAILING_SYNC, path, wrap=inject) as child:
        for number in range(30):
            assert child.line() == f"acknowledged {number}"
        _, unknown, unavailable, pid = child.line().split()
        os.kill(int(pid), signal.SIGKILL)  # the program itself, not strace
        child.wait()
    assert int(unknown) > 0, unavailable
    store = opened(path)
    assert {row.id for row in store.runs(RunQuery())} == {
        "own",
        *(f"r{number}" for number in range(30)),
    }
    own, r0 = store.run("own"), store.run("r0")
    assert [(entry.seq, entry.key) for entry in store.journal(own.pk)] == [
        (n, str(n)) for n in range(1, 30)
    ]
    assert [(m.number, m.id) for m in store.messages(r0.pk)] == [(n + 1, str(n)) for n in range(30)]
    store.close()
    check_file(path)


def test_reader_never_sees_a_commit_that_was_lost(faulty):
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
    wait_until(lambda: "kept49" in seen)
    stop.set()
    thread.join()
    assert seen == {f"kept{number}" for number in range(50)}
