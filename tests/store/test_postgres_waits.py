"""Calls on Postgres do not wait for locks of others longer than they must, and do not deadlock."""

import os
import signal
import threading
from collections.abc import Iterator

import psycopg
import pytest
from postgres_cost_tools import owned

from outlast.store.commands import (
    Record,
    Refused,
    RegisterWorker,
    Submit,
    SubmitMany,
    Sweep,
    UpdateSession,
)
from outlast.store.postgres import migrate
from outlast.store.postgres import store as store_module
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import CommitUnknown
from support.postgres_schemas import blocked_by, connected, counted, emptied, schema_of_this_process
from support.waiting import WAIT_SECONDS, wait_until


@pytest.fixture(scope="module")
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "bounds") as address:
        yield address


@pytest.fixture
def store(schema) -> Iterator[PostgresStore]:
    emptied(schema)
    store = PostgresStore.at(schema)
    store.open()
    store.commit([RegisterWorker("w", "host", 1, 600.0)])
    yield store
    store.close()


@pytest.fixture
def other(schema) -> Iterator[PostgresStore]:
    store = PostgresStore.at(schema)
    store.open()
    yield store
    store.close()


GATE = 6074
"""The key of an advisory lock that a test holds a function back with."""


def is_blocked(db: psycopg.Connection, store: PostgresStore) -> bool:
    """Whether the store's commit waits for a lock of another session."""
    pid = store._writer._db.info.backend_pid
    return db.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone()[0]


def test_repeated_submission_does_not_wait_for_a_locked_run(store, schema) -> None:
    submit = Submit("r", "flow", "[]", "t", "s")
    store.commit([submit])
    with connected(schema) as db, db.transaction():
        db.execute("SELECT 1 FROM runs WHERE id = 'r' FOR UPDATE")
        assert store.commit([submit])[0].row.id == "r"
        assert store.commit([SubmitMany((submit,))])[0][0].row.id == "r"


@pytest.fixture
def patient(monkeypatch) -> None:
    """A commit on the loop has all the time that a slow machine needs."""
    monkeypatch.setattr(store_module, "HERE_SECONDS", WAIT_SECONDS)


def test_commit_on_the_loop_waits_for_no_lock(store, schema, patient) -> None:
    row = owned(store)
    record = Record(row.pk, 1, row.fence, "step", "k", 1.0)
    with connected(schema) as db:
        with db.transaction():
            db.execute("SELECT 1 FROM runs WHERE id = 'r' FOR UPDATE")
            assert store.try_commit([record]) is None
        assert store.journal(row.pk) == []
        assert store.try_commit([record]) == [None]
        assert db.execute("SELECT current_setting('lock_timeout')").fetchone() == ("0",)
    assert store._writer.execute("SELECT current_setting('lock_timeout')") == [("0",)]


def test_commit_on_the_loop_does_not_wait_for_a_silent_server(store) -> None:
    row = owned(store)
    record = Record(row.pk, 1, row.fence, "step", "k", 1.0)
    backend = store._writer.db().info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(CommitUnknown):
            store.try_commit([record])
    finally:
        os.kill(backend, signal.SIGCONT)
    store.recover()
    assert store.commit([record]) == [None]
    assert len(store.journal(row.pk)) == 1


def test_long_run_submitted_on_the_loop_is_returned_whole(store, patient) -> None:
    (outcome,) = store.try_commit([Submit("long", "flow", f'"{"x" * 3000}"', "t", "s", worker="w")])
    assert (outcome.row.id, len(outcome.row.args)) == ("long", 3002)


def test_lowest_depth_limit_of_a_batch_applies(schema, store) -> None:
    stores = [PostgresStore.at(schema) for _ in range(4)]
    outcomes: list[object] = []
    for each in stores:
        each.open()
    store.commit([Submit("there", "f", "[]", "t", "s", "q")])

    def put(number: int, into: PostgresStore) -> None:
        both = [
            Submit(f"new{number}", "f", "[]", "t", "s", "q", depth_max=3),
            Submit("there", "f", "[]", "t", "s", "q"),
        ]
        outcomes.append(into.commit(both)[0])

    with connected(schema) as db:
        with db.transaction():
            db.execute("LOCK TABLE runs IN SHARE MODE")  # all wait at the same place
            threads = [threading.Thread(target=put, args=each) for each in enumerate(stores)]
            for thread in threads:
                thread.start()
            wait_until(lambda: all(is_blocked(db, each) for each in stores))
        for thread in threads:
            thread.join(WAIT_SECONDS)
    for each in stores:
        each.close()
    assert store.depth("q") == 3
    assert sum(isinstance(outcome, Refused) for outcome in outcomes) == 2


def test_worker_that_registers_during_a_sweep_is_not_swept(store, other, schema) -> None:
    with connected(schema) as db:
        name = f"holders_{migrate.version()}"
        (text,) = db.execute(f"SELECT pg_get_functiondef('{name}'::regproc)").fetchone()
        # The sweep looks twice. It is held back when it has locked the workers that seemed dead and looks again.
        hold_back = (
            f"IF nextval('looks') > 1 THEN PERFORM pg_advisory_xact_lock_shared({GATE}); END IF;"
        )
        slow = text.replace("BEGIN\n", f"BEGIN\n    {hold_back}\n", 1)
        assert slow != text
        db.execute(slow)
        db.execute("CREATE SEQUENCE looks")
        db.execute("SELECT pg_advisory_lock(%s)", (GATE,))
        try:
            swept: list[object] = []
            sweep = threading.Thread(target=lambda: swept.append(other.commit([Sweep()])[0]))
            sweep.start()
            wait_until(lambda: blocked_by(db) == 1)
            register = threading.Thread(
                target=store.commit,
                args=(
                    [
                        RegisterWorker("living", "h", 1, 600.0),
                        Submit("mine", "f", "[]", "t", "s", worker="living"),
                    ],
                ),
            )
            register.start()
            wait_until(lambda: not register.is_alive() or is_blocked(db, store))
            db.execute("SELECT pg_advisory_unlock(%s)", (GATE,))
            register.join(WAIT_SECONDS)
            sweep.join(WAIT_SECONDS)
        finally:
            db.execute("SELECT pg_advisory_unlock_all()")
            db.execute(text)
            db.execute("DROP SEQUENCE looks")
    assert swept[0].workers == ()
    row = store.run("mine")
    assert (row.status, row.worker, row.deaths) == ("running", "living", 0)


def test_sessions_created_in_opposite_orders_do_not_deadlock(store, other, schema) -> None:
    """One has made its first when the other begins: its turn comes, without a deadlock."""
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"

    def keep(into: PostgresStore, names: str, tag: str) -> None:
        for turn in range(30):
            into.commit(
                [
                    UpdateSession(f"{turn}-{name}", f"{tag}{turn}{name}", {"a": "1"})
                    for name in names
                ]
            )

    with connected(schema) as db:
        before = db.execute(deadlocks).fetchone()
        threads = [
            threading.Thread(target=keep, args=each)
            for each in ((store, "abcdefgh", "x"), (other, "hgfedcba", "y"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS)
        counted(store._writer, other._writer)
        assert db.execute(deadlocks).fetchone() == before


def test_epoch_is_never_reused(store, other, schema) -> None:
    with connected(schema) as db:
        first = store._committer.epoch
        db.execute("DELETE FROM writers WHERE id = %s", (store._committer.id,))
        store.recover()
        assert store._committer.epoch > first


def test_listing_the_queues_blocks_no_other_read(store, schema) -> None:
    store.commit([Submit("r", "flow", "[]", "t", "s")])
    with connected(schema) as db:
        with db.transaction():
            db.execute("LOCK TABLE queues IN ACCESS EXCLUSIVE MODE")
            listing = threading.Thread(target=store.queues)
            listing.start()
            wait_until(lambda: blocked_by(db) == 1)
            assert store.run("r") is not None
            assert listing.is_alive(), "it is the listing that waits"
        listing.join(WAIT_SECONDS)
