"""A store file of an older release is migrated by this one, and nothing in it is lost.

No release has a second migration yet, so these tests add one of their own.
"""

import sqlite3
from contextlib import closing

import pytest
from store_processes import Child

from outlast.errors import StoreTooNew
from outlast.store.commands import (
    Claim,
    Record,
    Refused,
    RegisterWorker,
    Release,
    Settle,
    Submit,
    Sweep,
    UpdateSession,
)
from outlast.store.rows import RunQuery
from outlast.store.sqlite import migrate
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.conformance import ManualClock
from outlast.testing.conformance.harness import check_rows

NOW = 1_700_000_000.0
EXTRA = """
ALTER TABLE runs ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';
CREATE INDEX runs_mood ON runs (mood);
UPDATE runs SET mood = 'glad' WHERE status = 'running';
CREATE TABLE moods (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO moods SELECT mood, count(*) FROM runs GROUP BY mood;
"""
FIRST = migrate.migrations()


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def path(tmp_path, clock):
    """Return a file that this release wrote, with runs in several states."""
    path = tmp_path / "outlast.db"
    store = SQLiteStore(path, clock=clock)
    store.open()
    store.commit(
        [
            RegisterWorker("old", "host", 1, 30.0),
            *(submit(id) for id in ("queued", "waiting", "done", "running")),
            submit("delayed", delay=100.0),
            UpdateSession("session", "t", {"field": "1"}),
        ]
    )
    rows = {
        row.id: row
        for row in store.commit(
            [Claim("old", "claim", limit=3, ids=("waiting", "done", "running"))]
        )[0]
    }
    store.commit(
        [
            Record(rows["running"].pk, 1, rows["running"].fence, "step", "k", NOW),
            Settle(rows["done"].pk, rows["done"].fence, "done", "1"),
            Release(
                rows["waiting"].pk,
                rows["waiting"].fence,
                "",
                waiting=True,
                due=NOW + 50,
                waits=("w",),
            ),
        ]
    )
    store.close()
    return path


def submit(id: str, **fields) -> Submit:
    return Submit(id, "flow", "{}", f"t-{id}", "00" * 16, **fields)


@pytest.fixture
def newer(monkeypatch):
    """Stand for a release with one more migration."""
    monkeypatch.setattr(migrate, "migrations", lambda: [*FIRST, EXTRA])


@pytest.fixture
def store(path, newer, clock):
    store = SQLiteStore(path, clock=clock)
    store.open()
    yield store
    store.close()


def look(path, statement):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement).fetchall()


def test_migration_keeps_every_row(store, path):
    assert {row.id: row.status for row in store.runs(RunQuery())} == {
        "queued": "queued",
        "waiting": "waiting",
        "done": "done",
        "running": "running",
        "delayed": "queued",
    }
    assert [entry.kind for entry in store.journal(store.run("running").pk)] == ["step"]
    assert store.session("session").fields == {"field": "1"}
    assert [worker.id for worker in store.workers()] == ["old"]
    check_rows(store)
    assert look(path, "SELECT * FROM moods ORDER BY name") == [("calm", 4), ("glad", 1)]
    assert look(path, "PRAGMA user_version") == [(2,)]


def test_execution_of_the_older_release_can_continue_with_its_fence(store):
    run = store.run("running")
    assert store.commit(
        [Record(run.pk, 2, run.fence, "step", "k", 1.0), Settle(run.pk, run.fence, "done")]
    ) == [None, None]
    assert store.commit([Record(run.pk, 3, run.fence, "step", "k", 1.0)]) == [Refused("fence")]


def test_fences_keep_growing_after_a_migration(store):
    before = store.run("running").fence
    store.commit([RegisterWorker("new", "host", 2, 30.0)])
    (rows,) = store.commit([Claim("new", "t", limit=10)])
    assert [row.id for row in rows] == ["queued"]
    assert rows[0].fence > before


def test_runs_of_a_worker_that_died_with_the_older_release_are_swept(store, clock):
    swept = []
    for _ in range(6):
        (outcome,) = store.commit([Sweep()])
        swept += outcome.runs
        clock.forward(8)
    assert swept == ["running"]
    check_rows(store)


def test_opening_a_migrated_file_again_changes_nothing(store, path, clock):
    before = (store.runs(RunQuery()), store.queues(), look(path, "SELECT sql FROM sqlite_schema"))
    again = SQLiteStore(path, clock=clock)
    again.open()
    after = (again.runs(RunQuery()), again.queues(), look(path, "SELECT sql FROM sqlite_schema"))
    assert after == before
    again.close()


def test_concurrent_processes_migrate_a_file_once(path):
    script = f"""
from outlast.store.sqlite import migrate
steps = [*migrate.migrations(), {EXTRA!r}]
migrate.migrations = lambda: steps
store = SQLiteStore(sys.argv[1])
say("here")
sys.stdin.readline()
store.open()
say(len(store.queues()))
store.close()
"""
    children = [Child(script, path) for _ in range(4)]
    try:
        assert [child.line() for child in children] == ["here"] * 4
        for child in children:
            child.tell()
        assert [child.line() for child in children] == ["1"] * 4
        assert [child.wait() for child in children] == [0] * 4
    finally:
        for child in children:
            child.__exit__()
    assert look(path, "SELECT sum(count) FROM moods") == [(5,)]


def test_process_of_the_older_release_is_told_that_the_file_is_newer(store, path, monkeypatch):
    monkeypatch.setattr(migrate, "migrations", lambda: FIRST)
    with pytest.raises(StoreTooNew):
        SQLiteStore(path).open()


def test_migration_that_breaks_off_leaves_the_older_file(path, clock, monkeypatch):
    schema = look(path, "SELECT sql FROM sqlite_schema")
    broken = EXTRA + "SELECT * FROM nowhere;\n"
    monkeypatch.setattr(migrate, "migrations", lambda: [*FIRST, broken])
    with pytest.raises(Exception, match="nowhere"):
        SQLiteStore(path, clock=clock).open()
    assert look(path, "PRAGMA user_version") == [(1,)]
    assert look(path, "SELECT sql FROM sqlite_schema") == schema
    monkeypatch.setattr(migrate, "migrations", lambda: [*FIRST, EXTRA])
    store = SQLiteStore(path, clock=clock)
    store.open()
    check_rows(store)
    store.close()
