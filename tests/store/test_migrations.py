"""A store file of an older Outlast is opened by this one, and nothing of it is lost."""

import sqlite3
from contextlib import closing
from importlib import resources

import pytest
from store_processes import Child

from outlast.errors import StoreTooNew
from outlast.store.commands import (
    CHECKPOINT,
    Append,
    Cancel,
    Claim,
    Drain,
    Prune,
    Record,
    RecordDurations,
    Refused,
    RegisterWorker,
    Release,
    RequestDrain,
    Resume,
    Retry,
    SetQueueLimits,
    Settle,
    Sweep,
    Undo,
    UpdateSession,
)
from outlast.store.rows import RunQuery, SessionQuery, SessionRow
from outlast.store.sqlite.store import APPLICATION_ID, SQLiteStore
from outlast.testing.conformance import ManualClock
from outlast.testing.conformance.harness import check_rows

NOW = 1_700_000_000.0

STEPS = [
    "0001_foundation",
    "0002_fleet",
    "0003_drain",
    "0004_effects",
    "0005_sessions",
    "0006_delayed",
    "0007_deaths",
]

RUNS = [
    # id, queue, priority, status, fence, worker, parent, started, due, ended, interrupted, waits
    ("queued", "default", 0, "queued", 0, None, None, None, NOW - 100, None, None, ""),
    ("urgent", "default", 5, "queued", 0, None, None, None, NOW - 50, None, None, ""),
    ("interrupted", "default", 0, "queued", -3, None, None, NOW - 90, NOW - 80, None, NOW - 80, ""),
    ("delayed", "default", 0, "queued", 0, None, None, None, NOW + 100, None, None, ""),
    ("running", "default", 0, "running", 7, "old", None, NOW - 70, NOW - 75, None, None, ""),
    ("child", "default", 0, "running", 8, "old", "running", NOW - 60, NOW - 60, None, None, ""),
    ("asleep", "default", 0, "waiting", -4, None, None, NOW - 60, NOW + 50, None, None, ""),
    ("receiving", "default", 0, "waiting", -5, None, None, NOW - 60, 1e12, None, None, "\nword\n"),
    ("woken", "other", 0, "waiting", -6, None, None, NOW - 60, NOW - 10, None, None, ""),
    ("parked", "other", 0, "parked", -2, None, None, NOW - 60, NOW - 10, None, None, ""),
    ("done", "other", 0, "done", -1, None, None, NOW - 60, NOW - 60, NOW - 50, None, ""),
    ("failed", "other", 0, "failed", -9, None, None, NOW - 60, NOW - 60, NOW - 40, None, ""),
    ("retried", "again", 0, "queued", 0, None, None, None, NOW - 20, None, None, ""),
    ("cancelled", "ended", 0, "cancelled", 0, None, None, None, NOW - 60, NOW - 30, None, ""),
]


def script(name: str) -> str:
    return (resources.files("outlast.store.sqlite.migrations") / f"{name}.sql").read_text()


def foundation() -> str:
    return script("0001_foundation")


@pytest.fixture
def path(tmp_path):
    """The file as the first version left it: its script, its marks, and runs in every state."""
    path = tmp_path / "outlast.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(foundation())
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
        db.execute("UPDATE counters SET value = 9 WHERE name = 'fence'")
        for (
            id,
            queue,
            priority,
            status,
            fence,
            worker,
            parent,
            started,
            due,
            ended,
            interrupted,
            waits,
        ) in RUNS:
            db.execute(
                "INSERT INTO runs (id, workflow, args, queue, priority, status, fence, worker, token, seed, parent, created,"
                " started, due, ended, interrupted, waits) VALUES (?, 'flow', '[]', ?, ?, ?, ?, ?, ?, 's', ?, ?, ?, ?, ?, ?, ?)",
                (id, queue, priority, status, fence, worker, f"t-{id}", parent, NOW - 100, started, due, ended, interrupted, waits),
            )  # fmt: skip
        db.execute(
            "INSERT INTO entries (run, seq, fence, kind, key, at, value) SELECT pk, 1, 7, 'step', 'k', ?, '1' FROM runs"
            " WHERE id = 'running'",
            (NOW - 65,),
        )
        db.execute(
            "INSERT INTO entries (run, seq, fence, kind, key, at, value) SELECT pk, 1, 0, 'retry', '', ?, '{}' FROM runs"
            " WHERE id = 'retried'",
            (NOW - 20,),
        )
        db.execute(
            "INSERT INTO workers (id, host, pid, started, lease_until) VALUES ('old', 'h', 1, ?, ?)",
            (NOW - 99, NOW + 5),
        )
    return path


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def store(path, clock):
    store = SQLiteStore(path, clock=clock)
    store.open()
    yield store
    store.close()


def claim_all(store, worker="w1", **fields):
    store.acquire_liveness(worker)
    store.commit([RegisterWorker(worker, "host", 1, 60.0)])
    (rows,) = store.commit([Claim(worker, f"{worker}-{store.now()}", limit=100, **fields)])
    return [row.id for row in rows]


def test_migration_keeps_every_run(store):
    assert [(row.id, row.status, row.fence) for row in reversed(store.runs(RunQuery()))] == [
        (id, status, fence) for id, _, _, status, fence, *_ in RUNS
    ]
    row = store.run("running")
    assert [entry.kind for entry in store.journal(row.pk)] == ["step"]
    assert {row.attempts_max for row in store.runs(RunQuery())} == {5}
    assert {row.interruptions_max for row in store.runs(RunQuery())} == {100}


def test_migrated_counts_match_the_rows(store):
    assert [(q.name, q.queued, q.running, q.waiting, q.parked, q.dead) for q in store.queues()] == [
        ("again", 1, 0, 0, 0, 0),
        ("default", 4, 1, 2, 0, 0),
        ("ended", 0, 0, 0, 0, 0),
        ("other", 0, 0, 1, 1, 0),
    ]
    assert [(q.depth_max, q.concurrency_max) for q in store.queues()] == [(None, None)] * 4
    claim_all(store, workflows=("none",))
    check_rows(store)


def test_due_runs_are_claimed_in_order_after_a_migration(store, clock):
    assert store.peek(("default", "other"), ("flow",)).ready
    assert claim_all(store) == ["urgent", "interrupted", "queued", "retried", "woken"]
    assert claim_all(store, "w2") == []
    assert store.peek(("default",), ("flow",)).next_due == NOW + 50
    clock.forward(50)
    assert claim_all(store, "w3") == ["asleep"]
    clock.forward(50)
    assert claim_all(store, "w4") == ["delayed"]
    check_rows(store)


def test_fences_keep_growing_after_a_migration(store):
    claim_all(store)
    fences = [row.fence for row in store.runs(RunQuery(statuses=("running",)))]
    assert len(set(fences)) == 7
    assert sorted(fences)[:2] == [7, 8]
    assert sorted(fences)[2:] == [10, 11, 12, 13, 14]


def test_only_a_run_that_never_started_is_in_its_first_life(store):
    """A life that takes itself for the first reads no journal."""
    claim_all(store)
    lives = {row.id: row.lives for row in store.runs(RunQuery())}
    assert {id for id, count in lives.items() if count == 1} == {"queued", "urgent"}
    assert (
        min(lives[id] for id in ("interrupted", "retried", "woken", "running", "asleep", "failed"))
        > 1
    )


def test_life_of_the_older_version_can_go_on_with_its_fence(store):
    run = store.run("running")
    assert store.commit([Record(run.pk, 2, 7, "step", "k", 1.0), Settle(run.pk, 7, "done")]) == [
        None,
        None,
    ]
    assert {queue.name: queue.running for queue in store.queues()}["default"] == 0
    assert store.commit([Record(run.pk, 3, 7, "step", "k", 1.0)]) == [Refused("fence")]


def test_runs_of_a_worker_that_died_with_the_older_version_are_swept(store, clock):
    swept = []
    for _ in range(6):
        (outcome,) = store.commit([Sweep()])
        swept += outcome.runs
        clock.forward(10)
    assert sorted(swept) == ["child", "running"]
    assert [store.run(id).status for id in ("running", "child")] == ["queued", "queued"]
    claim_all(store, workflows=("none",))
    check_rows(store)


def test_ended_and_parked_runs_can_be_retried_after_a_migration(store):
    assert store.commit([Resume("parked", "t"), Retry("failed", "t"), Cancel("delayed", "no"), SetQueueLimits("other", 9, 1)]) == [
        None, None, "cancelled", None
    ]  # fmt: skip
    assert claim_all(store, queues=("other",)) == ["woken"]
    check_rows(store)


def test_opening_a_migrated_file_again_changes_nothing(store, path, clock):
    claim_all(store)
    before = (store.runs(RunQuery()), store.queues())
    again = SQLiteStore(path, clock=clock)
    again.open()
    assert (again.runs(RunQuery()), again.queues()) == before
    again.close()


def test_concurrent_processes_migrate_a_file_once(path, clock):
    script = """
store = SQLiteStore(sys.argv[1])
say("here")
sys.stdin.readline()
store.open()
say(store.depth("default"), len(store.queues()))
store.close()
"""
    children = [Child(script, path) for _ in range(4)]
    try:
        assert [child.line() for child in children] == ["here"] * 4
        for child in children:
            child.tell()
        assert [child.line() for child in children] == ["4 4"] * 4
        assert [child.wait() for child in children] == [0] * 4
    finally:
        for child in children:
            child.__exit__()
    store = SQLiteStore(path, clock=clock)
    store.open()
    assert claim_all(store) == ["urgent", "interrupted", "queued", "retried", "woken"]
    check_rows(store)
    store.close()


@pytest.mark.parametrize(
    "older",
    [STEPS[:count] for count in range(1, len(STEPS))],
)
def test_process_of_the_older_version_is_told_that_the_file_is_newer(
    store, path, monkeypatch, older
):
    monkeypatch.setattr(
        "outlast.store.sqlite.store._migrations", lambda: [script(name) for name in older]
    )
    with pytest.raises(StoreTooNew):
        SQLiteStore(path).open()


def test_migration_that_breaks_off_leaves_the_older_file(path, clock, monkeypatch):
    from outlast.store.sqlite import store as module

    steps = module._migrations()
    monkeypatch.setattr(
        module, "_migrations", lambda: [steps[0], steps[1] + "\nSELECT * FROM nowhere;\n"]
    )
    with pytest.raises(Exception, match="nowhere"):
        SQLiteStore(path, clock=clock).open()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert "ready" not in [column[1] for column in db.execute("PRAGMA table_info(runs)")]
    monkeypatch.undo()
    store = SQLiteStore(path, clock=clock)
    store.open()
    assert claim_all(store) == ["urgent", "interrupted", "queued", "retried", "woken"]
    store.close()


# -- a file of the fleet, that knows no drain


@pytest.fixture
def fleet(path):
    """The same file as the second version left it, with a worker that drains and a journal in which somebody was retried."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(script("0002_fleet"))
        db.execute("PRAGMA user_version = 2")
        db.execute("UPDATE workers SET draining = 1, renewed = ?, lease = 10", (NOW - 5,))
        db.execute("UPDATE entries SET value = '{\"token\": \"t-old\"}' WHERE kind = 'retry'")
    return path


@pytest.fixture
def upgraded(fleet, clock):
    store = SQLiteStore(fleet, clock=clock)
    store.open()
    yield store
    store.close()


def test_migration_keeps_a_fleet_and_adds_no_drains(upgraded):
    assert [(row.id, row.status, row.fence) for row in reversed(upgraded.runs(RunQuery()))] == [
        (id, status, fence) for id, _, _, status, fence, *_ in RUNS
    ]
    (worker,) = upgraded.workers()
    assert (worker.id, worker.draining, worker.asked, worker.held) == ("old", 1, None, 2)
    assert (upgraded.drains(), upgraded.asked("old")) == ([], None)
    assert upgraded.durations([("flow", "k")]) == {("flow", "k"): []}
    running = upgraded.run("running")
    assert (upgraded.done(running.pk, ["k"]), upgraded.done_count(running.pk)) == ({}, 0)
    assert upgraded.last_seq(running.pk) == 1
    claim_all(upgraded, workflows=("none",))
    check_rows(upgraded)


def test_interrupted_runs_of_an_older_version_do_not_count_as_recoveries(upgraded):
    assert claim_all(upgraded) == ["urgent", "interrupted", "queued", "retried", "woken"]
    assert upgraded.drains() == []


def test_worker_of_the_fleet_can_be_drained(upgraded):
    begun = upgraded.run("running")
    asked, given_back, *_ = upgraded.commit(
        [
            RequestDrain("old", "upgrade"),
            Drain("old", "SIGTERM", (begun.fence,)),
            RecordDurations((("flow", "k", 1.0),)),
        ]
    )
    assert (asked, given_back) == (None, ("child",))
    assert upgraded.commit([Release(begun.pk, begun.fence, "drain")]) == ["queued"]
    claim_all(upgraded)
    (drain,) = upgraded.drains()
    assert (drain.worker, drain.host, drain.pid, drain.recoveries) == ("old", "h", 1, (0.0,))
    check_rows(upgraded)


def test_worker_that_died_while_it_drained_before_the_upgrade_gets_its_report(upgraded, clock):
    for _ in range(6):
        upgraded.commit([Sweep()])
        clock.forward(4)
    (drain,) = upgraded.drains()
    assert (drain.worker, drain.reason, drain.held) == ("old", "", 2)
    assert '"running", "child"' in drain.report


def test_repeat_of_what_was_retried_before_the_upgrade_is_known_as_one(upgraded):
    assert upgraded.commit([Retry("retried", "t-old"), Retry("retried", "t-new")]) == [
        None,
        Refused("status", "queued"),
    ]


def test_upgrade_of_a_fleet_that_breaks_off_leaves_the_older_file(fleet, clock, monkeypatch):
    from outlast.store.sqlite import store as module

    steps = module._migrations()
    monkeypatch.setattr(
        module, "_migrations", lambda: [*steps[:2], steps[2] + "\nSELECT * FROM nowhere;\n"]
    )
    with pytest.raises(Exception, match="nowhere"):
        SQLiteStore(fleet, clock=clock).open()
    with closing(sqlite3.connect(fleet)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert "left_by" not in [column[1] for column in db.execute("PRAGMA table_info(runs)")]
    monkeypatch.undo()
    store = SQLiteStore(fleet, clock=clock)
    store.open()
    assert claim_all(store) == ["urgent", "interrupted", "queued", "retried", "woken"]
    store.close()


# -- a file of the drain, that knows no effects


@pytest.fixture
def drained(fleet):
    with closing(sqlite3.connect(fleet, isolation_level=None)) as db:
        db.executescript(script("0003_drain"))
        db.execute("PRAGMA user_version = 3")
    return fleet


def test_file_that_knows_no_effects_has_none_and_can_have_some(drained, clock):
    store = SQLiteStore(drained, clock=clock)
    store.open()
    assert {(row.undoing, row.abandon_after) for row in store.runs(RunQuery())} == {(None, None)}
    running = store.run("running")
    assert [entry.cost for entry in store.journal(running.pk)] == [None]
    intent = Record(running.pk, 2, 7, "intent", "k", 1.0, cost='{"usd":1}')
    assert store.commit([intent, Undo(running.pk, 7, "{}"), Cancel("parked", "no")]) == [
        None,
        None,
        "cancelled",
    ]
    assert [entry.cost for entry in store.journal(running.pk)] == [None, '{"usd":1}', None]
    assert claim_all(store)[:2] == ["urgent", "interrupted"]
    assert (store.run("running").status, store.run("running").undoing) == ("running", "{}")
    check_rows(store)
    store.close()


def test_upgrade_to_effects_that_breaks_off_leaves_the_older_file(drained, clock, monkeypatch):
    from outlast.store.sqlite import store as module

    steps = module._migrations()
    monkeypatch.setattr(
        module, "_migrations", lambda: [*steps[:3], steps[3] + "\nSELECT * FROM nowhere;\n"]
    )
    with pytest.raises(Exception, match="nowhere"):
        SQLiteStore(drained, clock=clock).open()
    with closing(sqlite3.connect(drained)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert "undoing" not in [column[1] for column in db.execute("PRAGMA table_info(runs)")]


# -- a file of the effects, whose sessions have no spaces and no lists


@pytest.fixture
def effective(drained):
    with closing(sqlite3.connect(drained, isolation_level=None)) as db:
        db.executescript(script("0004_effects"))
        db.execute("PRAGMA user_version = 4")
        db.executemany(
            "INSERT INTO sessions (id, version, updated, expires, token) VALUES (?, ?, ?, ?, ?)",
            [
                ("s", 3, NOW - 5, None, "t3"),
                ("over", 1, NOW - 5, NOW - 1, "t"),
                ("bare", 1, NOW - 9, NOW + 9, "t"),
            ],
        )
        fields = [("s", "a", '"1"'), ("s", "b", "2"), ("over", "c", "3")]
        db.executemany(
            "INSERT INTO session_fields (session, field, value) VALUES (?, ?, ?)", fields
        )
    return drained


def test_sessions_of_a_file_that_knows_no_lists_are_there_as_they_were(effective, clock):
    store = SQLiteStore(effective, clock=clock)
    store.open()
    assert store.session("s") == SessionRow("s", 3, NOW - 5, None, {"a": '"1"', "b": "2"})
    assert [session.id for session in store.sessions(SessionQuery())] == ["s", "bare"]
    assert (store.session("over"), store.session("s", CHECKPOINT)) == (None, None)
    repeat, changed = (
        UpdateSession("s", "t3", {"a": None}),
        UpdateSession("s", "t4", {"a": None}, version=3, appends={"b": Append(("1",))}),
    )
    assert store.commit([repeat, changed, Prune(NOW, sessions=True)]) == [3, 4, 1]
    assert store.session("s") == SessionRow("s", 4, NOW, None, {}, {"b": 1})
    with closing(sqlite3.connect(effective)) as db:
        assert db.execute("SELECT id FROM sessions ORDER BY id").fetchall() == [("bare",), ("s",)]
        assert db.execute(
            "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%before'"
        ).fetchone() == (0,)
    store.close()


def test_upgrade_to_lists_that_breaks_off_leaves_the_older_file(effective, clock, monkeypatch):
    from outlast.store.sqlite import store as module

    steps = module._migrations()
    monkeypatch.setattr(
        module, "_migrations", lambda: [*steps[:4], steps[4] + "\nSELECT * FROM nowhere;\n"]
    )
    with pytest.raises(Exception, match="nowhere"):
        SQLiteStore(effective, clock=clock).open()
    with closing(sqlite3.connect(effective)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (4,)
        assert db.execute("SELECT id, version FROM sessions ORDER BY id").fetchall() == [
            ("bare", 1),
            ("over", 1),
            ("s", 3),
        ]
