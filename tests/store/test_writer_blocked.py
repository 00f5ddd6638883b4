"""What the writer does when another program holds a lock that a commit needs."""

import asyncio
import threading

import pytest
from writer_tools import (
    PATIENCE,
    Clock,
    WatchedStore,
    at_the_gate,
    entry,
    moved_clock,
    submit,
    with_writer,
)

from outlast.errors import StoreUnavailable
from outlast.store.commands import (
    DeregisterWorker,
    Refused,
    RegisterWorker,
    Renew,
    Settle,
)
from outlast.store.protocol import Blocked
from support.waiting import WAIT_SECONDS, wait_until_async


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return moved_clock(monkeypatch)


@pytest.fixture
def store():
    store = WatchedStore()
    store.open()
    yield store
    store.close()


async def held_runs(writer, store, *ids):
    store.acquire_liveness("w")
    await writer.execute(RegisterWorker("w", "host", 1, 60.0))
    rows = [(await writer.execute(submit(id)._replace(worker="w"))).row for id in ids]
    store.calls.clear()
    return rows


def locked(*rows):
    return Blocked("locked", frozenset(("run", row.pk) for row in rows))


async def put_together(writer, store, *commands):
    """Have them gathered into one batch, behind a commit at the closed gate."""
    while not store.arrived.empty():
        store.arrived.get()
    store.gate.clear()
    asked = [asyncio.ensure_future(writer.execute(submit("gate")))]
    await at_the_gate(store)
    asked += [asyncio.ensure_future(writer.execute(command)) for command in commands]
    await asyncio.sleep(0)
    return asked[1:]


def test_locked_run_delays_only_itself(store):
    async def scenario(writer):
        blocked, free = await held_runs(writer, store, "blocked", "free")
        commands = [entry(blocked, 1), entry(free, 1), entry(blocked, 2), entry(free, 2)]
        asked = await put_together(writer, store, *commands)
        store.plan = [None] + [locked(blocked)] * 3
        store.gate.set()
        assert await asyncio.gather(*asked) == [None] * 4
        batches = [command for batch in store.calls[1:] for command in batch]
        assert [command.seq for command in batches if command.run == blocked.pk][-2:] == [1, 2]
        assert len(store.journal(blocked.pk)) == len(store.journal(free.pk)) == 2
        first_free = next(
            n for n, batch in enumerate(store.calls) if batch == [entry(free, 1), entry(free, 2)]
        )
        assert first_free < len(store.calls) - 1, "it did not wait for the other run"

    with_writer(store, scenario)


def test_later_commands_of_a_locked_run_do_not_overtake(store):
    async def scenario(writer):
        (row,) = await held_runs(writer, store, "r")
        asked = await put_together(writer, store, entry(row, 1))
        store.plan = [None, locked(row)]
        store.gate.set()
        await wait_until_async(lambda: writer._deferred)
        writer.enqueue(entry(row, 2), lambda *_: None, alone=True)
        assert await writer.execute(entry(row, 3)) is None
        assert await asked[0] is None
        assert [one.seq for one in store.journal(row.pk)] == [1, 2, 3]

    with_writer(store, scenario)


def test_worker_leaves_after_everything_it_has_to_write(store):
    async def scenario(writer):
        first, second = await held_runs(writer, store, "first", "second")
        ends = [Settle(row.pk, row.fence, "done") for row in (first, second)]
        asked = await put_together(writer, store, *ends)
        store.plan = [None, locked(first, second), locked(first), locked(first)]
        store.gate.set()
        await wait_until_async(lambda: writer._deferred)
        assert await writer.execute(DeregisterWorker("w")) is None
        assert await asyncio.gather(*asked) == [None, None]
        assert [store.run(id).status for id in ("first", "second")] == ["done", "done"]

    with_writer(store, scenario)


def test_writes_behind_one_that_stayed_blocked_fail_with_it(store, clock):
    """Otherwise a run could end without the entry that led to its end."""

    async def scenario(writer):
        (row,) = await held_runs(writer, store, "r")
        asked = await put_together(writer, store, entry(row, 1))
        store.plan = [None] + [locked(row)] * 1000
        store.gate.set()
        await wait_until_async(lambda: writer._deferred)
        asked.append(asyncio.ensure_future(writer.execute(Settle(row.pk, row.fence, "done"))))
        await asyncio.sleep(0)
        clock.forward(PATIENCE)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
        store.plan.clear()
        assert store.run("r").status == "running"

    with_writer(store, scenario)


def test_store_that_blocks_every_write_counts_as_unavailable(store, clock):
    async def scenario(writer):
        store.plan = [Blocked("a table is locked")] * 10_000
        asked = [asyncio.ensure_future(writer.execute(submit(f"r{n}"))) for n in range(50)]
        await wait_until_async(lambda: writer._health.failure)
        clock.forward(PATIENCE)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
        store.plan.clear()
        assert (await writer.execute(submit("later"))).new

    with_writer(store, scenario)


def test_entries_behind_one_that_was_given_up_fail_with_it(store, clock):
    """Otherwise the journal would go on without it."""

    async def scenario(writer):
        (row,) = await held_runs(writer, store, "r")
        store.plan = [StoreUnavailable("away")] * 10_000
        first = asyncio.ensure_future(writer.execute(entry(row, 1)))
        await wait_until_async(lambda: store.calls)
        clock.forward(PATIENCE / 2)
        second = asyncio.ensure_future(writer.execute(entry(row, 2)))
        await asyncio.sleep(0)
        clock.forward(PATIENCE / 2)  # the first is late, the second is not
        await asyncio.wait([first])
        store.plan.clear()
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
        assert store.journal(row.pk) == []

    with_writer(store, scenario)


def test_blocked_renewal_delays_nothing_else(store):
    async def scenario(writer):
        blocked, commit = threading.Event(), store.commit

        def commit_unless_renewal(commands):
            if isinstance(commands[0], Renew) and not blocked.is_set():
                raise Blocked("the worker's row is locked")
            return commit(commands)

        store.commit = commit_unless_renewal
        renewal = asyncio.ensure_future(
            asyncio.to_thread(writer.execute_urgent, Renew("w", 60.0), WAIT_SECONDS)
        )
        for number in range(10):
            assert (await writer.execute(submit(f"r{number}"))).new
        assert not renewal.done()
        blocked.set()
        assert isinstance(await renewal, Refused)

    with_writer(store, scenario)
