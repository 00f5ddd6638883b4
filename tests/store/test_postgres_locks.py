"""A row that another program keeps locked holds up its own run, and nothing else."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from outlast import Outlast, step, workflow
from outlast.store.commands import (
    Cancel,
    DeregisterWorker,
    Drain,
    Record,
    RegisterWorker,
    Renew,
    Settle,
    Submit,
    Sweep,
    UpdateSession,
)
from outlast.store.postgres.batch_committer import AGAIN_MAX
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import Blocked
from outlast.testing.conformance.harness import ManualClock
from support.postgres_schemas import connected, emptied, schema_of_this_process

LEASE_SECONDS = 600.0


@pytest.fixture(scope="module")
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "locks") as address:
        yield address


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(schema, clock) -> Iterator[PostgresStore]:
    emptied(schema)
    store = PostgresStore.at(schema, clock=clock)
    store.open()
    store.commit([RegisterWorker(id, "host", 1, LEASE_SECONDS) for id in ("w", "other")])
    yield store
    store.close()


@pytest.fixture
def outsider(schema) -> Iterator[psycopg.Connection]:
    with connected(schema) as db:
        yield db


@contextmanager
def locked(db: psycopg.Connection, id: str) -> Iterator[None]:
    """Keep a run's row locked, like a person who reads it and forgets to commit."""
    with db.transaction():
        assert db.execute("SELECT 1 FROM runs WHERE id = %s FOR UPDATE", (id,)).fetchone()
        yield


def held(store: PostgresStore, id: str, parent: str | None = None):
    return store.commit([Submit(id, "flow", "[]", id, "s", parent=parent, worker="w")])[0].row


def entry(row, seq: int = 1) -> Record:
    return Record(row.pk, seq, row.fence, "step", str(seq), 1.0)


def expire(store: PostgresStore, clock: ManualClock) -> None:
    """Let the lease of `w` run out. Another worker renews its own, so the store is in use all the time."""
    for _ in range(3):
        clock.forward(0.4 * LEASE_SECONDS)
        assert store.commit([Renew("other", LEASE_SECONDS)]) == [None]


def test_blocked_batch_names_the_locked_run_and_writes_nothing(store, outsider):
    rows = [held(store, id) for id in ("a", "b", "c")]
    with locked(outsider, "b"), pytest.raises(Blocked) as raised:
        store.commit([entry(row) for row in rows])
    assert raised.value.subjects == {("run", rows[1].pk), ("id", "b")}
    assert [store.journal(row.pk) for row in rows] == [[], [], []]


def test_blocked_command_names_the_id_of_the_run(store, outsider):
    held(store, "b")
    with locked(outsider, "b"), pytest.raises(Blocked) as raised:
        store.commit([Cancel("b", "why")])
    assert ("id", "b") in raised.value.subjects


def test_submit_does_not_wait_for_another_locked_run(store, outsider):
    held(store, "b")
    with locked(outsider, "b"):
        assert store.commit([Submit("new", "flow", "[]", "t", "s")])[0].new


def test_blocked_commit_names_the_locked_session(store, outsider):
    row = held(store, "r")
    store.commit([UpdateSession("s", "t1", {"field": "1"})])
    with outsider.transaction():
        outsider.execute("SELECT 1 FROM sessions FOR UPDATE")
        with pytest.raises(Blocked) as raised:
            store.commit([UpdateSession("s", "t2", {"field": "2"}), entry(row)])
        assert raised.value.subjects == {("session", "s")}
        with pytest.raises(Blocked) as raised:
            store.commit([UpdateSession("s", "t3", {"field": "3"}, record=entry(row))])
        assert raised.value.subjects == {("run", row.pk)}
    assert store.journal(row.pk) == []


def test_heartbeat_does_not_wait_for_a_locked_row(store, outsider):
    store.acquire_liveness("w")
    with outsider.transaction():
        assert outsider.execute("SELECT 1 FROM presence FOR UPDATE").fetchall() == [(1,)]
        assert store._beat_writing(["w"])
        assert store._writer.is_usable


def test_blocked_settle_names_a_child_whose_parent_is_locked(store, outsider):
    held(store, "parent")
    child = held(store, "child", parent="parent")
    with locked(outsider, "parent"), pytest.raises(Blocked) as raised:
        store.commit([Settle(child.pk, child.fence, "done")])
    assert ("run", child.pk) in raised.value.subjects


def test_sweep_skips_locked_runs_and_takes_them_later(store, outsider, clock):
    held(store, "free")
    held(store, "locked")
    expire(store, clock)
    with locked(outsider, "locked"):
        assert store.commit([Sweep()])[0].runs == ("free",)
        assert store.commit([Sweep()])[0].runs == ()
        assert (store.run("free").status, store.run("locked").status) == ("queued", "running")
    swept = store.commit([Sweep()])[0]
    assert (swept.runs, swept.workers) == (("locked",), ("w",))
    assert store.run("locked").status == "queued"


def test_run_whose_neighbour_is_locked_did_not_die_alone(store, outsider, clock):
    """Only a death in isolation makes a dead letter, and the worker held two runs."""
    for id in ("free", "locked"):
        held(store, id)
    outsider.execute("UPDATE runs SET deaths_in_a_row = 4, attempts_max = 5")
    expire(store, clock)
    with locked(outsider, "locked"):
        first = store.commit([Sweep()])[0]
    second = store.commit([Sweep()])[0]
    assert (first.runs, second.runs) == (("free",), ("locked",))
    assert (first.dead, second.dead) == ((), ())
    assert [store.run(id).deaths_in_a_row for id in ("free", "locked")] == [4, 4]


def test_child_is_not_swept_while_its_parent_is_locked(store, outsider, clock):
    held(store, "parent")
    held(store, "child", parent="parent")
    outsider.execute("UPDATE runs SET cancel = 'enough', workflow = '' WHERE id = 'child'")
    expire(store, clock)
    with locked(outsider, "parent"):
        assert store.commit([Sweep()])[0].runs == ()
    assert set(store.commit([Sweep()])[0].runs) == {"parent", "child"}


def test_worker_with_a_locked_run_can_drain_and_leave(store, outsider, clock):
    for id in ("free", "locked"):
        held(store, id)
    with locked(outsider, "locked"):
        assert store.commit([Drain("w", "deploy")]) == [("free",)]
        assert store.commit([DeregisterWorker("w")]) == [None]
        assert store.run("locked").status == "running"
    expire(store, clock)
    assert store.commit([Sweep()])[0].runs == ("locked",)
    row = store.run("locked")
    assert (row.status, row.deaths, row.interruptions) == ("queued", 0, 1), (
        "interrupted, not at fault"
    )


def test_sweep_does_not_wait_for_a_locked_worker(store, outsider, clock):
    held(store, "r")
    expire(store, clock)
    with outsider.transaction():
        outsider.execute("SELECT 1 FROM workers FOR UPDATE")
        assert store.commit([Sweep()])[0].workers == ()
    assert store.commit([Sweep()])[0].workers == ("w",)


executed: list[tuple[str, int]] = []
STEPS = 5


@step
async def count(run: str, number: int) -> int:
    executed.append((run, number))
    return number


@workflow
async def counting(run: str) -> int:
    return sum([await count(run, number) for number in range(STEPS)])


@pytest.mark.timeout(300)
def test_locked_run_blocks_neither_other_runs_nor_lease_renewals(schema):
    """Both workers renew their leases while the steps of one run wait for the lock, and the other runs end."""
    emptied(schema)
    executed.clear()
    ids = [f"run-{number}" for number in range(4)]

    async def main() -> None:
        options = {"lease": 10.0, "heartbeat": 0.5, "ramp": 0.0, "workflows": [counting]}
        async with (
            Outlast(schema, worker=True, **options) as one,
            Outlast(schema, worker=True, **options),
        ):
            with connected(schema) as db:
                before = {row.id for row in await one.workers()}
                runs = [await one.submit(counting(id), id=id, delay=0.5) for id in ids]
                with locked(db, ids[0]):
                    await asyncio.gather(*(run.result(timeout=200) for run in runs[1:]))
                    (at,) = db.execute(
                        "SELECT extract(epoch FROM clock_timestamp())::float8"
                    ).fetchone()
                    renewed = "SELECT count(*) FROM workers WHERE renewed > %s"
                    while db.execute(renewed, (at,)).fetchone() != (2,):
                        await asyncio.sleep(0.1)
                assert await runs[0].result(timeout=200) == sum(range(STEPS))
                assert {row.id for row in await one.workers()} == before
                assert [(await run.info()).deaths for run in runs] == [0] * len(runs)

    asyncio.run(main())
    assert len(executed) == len(set(executed)) == STEPS * len(ids)


def test_commit_waits_longer_for_a_lock_after_many_deadlocks(store, monkeypatch):
    """A lock wait that follows the last permitted deadlock is repeated like any other."""
    errors = [psycopg.errors.DeadlockDetected() for _ in range(AGAIN_MAX - 1)]
    errors.append(psycopg.errors.LockNotAvailable())
    call = store._committer._call

    def fail_first(*args):
        if errors:
            raise errors.pop(0)
        return call(*args)

    monkeypatch.setattr(store._committer, "_call", fail_first)
    store.commit([Submit(id, "flow", "[]", id, "s") for id in ("a", "b")])
    assert errors == []
    assert store.run("a") is not None
