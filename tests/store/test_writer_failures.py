"""What the writer does when commits fail, block or stay unknown."""

import asyncio
import contextlib
import queue
import threading
import time

import pytest
from writer_tools import PATIENCE, WatchedStore, at_the_gate, entry, submit, with_writer

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.commands import (
    DeregisterWorker,
    Record,
    Refused,
    RegisterWorker,
    Renew,
    Settle,
    Sweep,
    Swept,
)
from outlast.store.protocol import Blocked, CommitUnknown
from outlast.store.writer import deferred, write_queue
from outlast.store.writer import group_commit as writer_module
from outlast.store.writer.group_commit import GroupCommitWriter
from support.waiting import WAIT_SECONDS, wait_until_async


class Clock:
    """The time module for the writer. A test can move its monotonic clock forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __getattr__(self, name: str):
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def forward(self, seconds: float) -> None:
        self.ahead += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    for module in (writer_module, deferred, write_queue):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def store():
    store = WatchedStore()
    store.open()
    yield store
    store.close()


def test_unavailable_store_is_tried_again(store):
    async def scenario(writer):
        store.plan = [StoreUnavailable("locked")] * 3
        assert (await writer.execute(submit("r"))).new
        assert store.calls == [[submit("r")]] * 4

    with_writer(store, scenario)


def test_every_waiter_fails_when_patience_ends_and_the_writer_goes_on(store, clock):
    async def scenario(writer):
        store.gate.clear()
        store.plan = [None] + [StoreUnavailable("locked")] * 1000
        blocked = asyncio.ensure_future(writer.execute(submit("blocked")))
        await at_the_gate(store)
        asked = [asyncio.ensure_future(writer.execute(submit(f"r{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        store.gate.set()
        await wait_until_async(lambda: len(store.calls) > 3)
        assert not any(waiting.done() for waiting in asked)
        clock.forward(PATIENCE)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        assert "not known" not in str(outcomes[0])
        await blocked
        store.plan.clear()
        assert (await writer.execute(submit("later"))).new
        assert store.run("r0") is None

    with_writer(store, scenario)


def test_waiter_in_a_thread_fails_when_patience_ends(store):
    async def scenario(writer):
        store.plan = [StoreUnavailable("locked")] * 1000
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(writer.execute_urgent, Sweep(), WAIT_SECONDS)

    with_writer(store, scenario, patience=0.1)


def test_unknown_commit_is_recovered_and_sent_again_as_it_was(store):
    async def scenario(writer):
        store.acquire_liveness("w")
        await writer.execute(RegisterWorker("w", "host", 1, 60.0))
        store.calls.clear()
        store.plan = [CommitUnknown("fsync")]
        outcome = await writer.execute(submit("r")._replace(worker="w"))
        assert outcome.new
        row = outcome.row
        store.plan = [CommitUnknown("fsync"), StoreUnavailable("still"), CommitUnknown("again")]
        assert await writer.execute(Record(row.pk, 1, row.fence, "step", "k", 1.0)) is None
        store.plan = [CommitUnknown("fsync")]
        store.recovery = [StoreUnavailable("a reader")] * 2
        assert await writer.execute(Settle(row.pk, row.fence, "done")) is None
        first, record, settle = (
            [submit("r")._replace(worker="w")],
            [Record(row.pk, 1, row.fence, "step", "k", 1.0)],
            [Settle(row.pk, row.fence, "done")],
        )
        assert store.calls == [
            first, "recover", first,
            record, "recover", record, "recover", record, "recover", record,
            settle, "recover", "recover", "recover", settle,
        ]  # fmt: skip
        assert len(store.journal(row.pk)) == 1
        assert store.run("r").status == "done"

    with_writer(store, scenario)


def test_outcome_that_stays_unknown_is_reported_as_unknown(store):
    async def scenario(writer):
        store.plan = [CommitUnknown("fsync")]
        store.recovery = [StoreUnavailable("a reader")] * 1000
        with pytest.raises(StoreUnavailable, match="not known"):
            await writer.execute(submit("r"))

    with_writer(store, scenario, patience=0.2)


def test_broken_store_is_not_tried_again(store):
    async def scenario(writer):
        store.plan = [StoreBroken("damaged")]
        outcomes = await asyncio.gather(
            *(writer.execute(submit(f"r{n}")) for n in range(3)), return_exceptions=True
        )
        assert any(isinstance(outcome, StoreBroken) for outcome in outcomes)
        assert len(store.calls) <= 3

    with_writer(store, scenario)


def test_bug_in_the_store_fails_its_waiters(store):
    async def scenario(writer):
        store.plan = [ZeroDivisionError("a bug")]
        with pytest.raises(StoreUnavailable, match="ZeroDivisionError"):
            await writer.execute(submit("r"))
        assert (await writer.execute(submit("r"))).new

    with_writer(store, scenario)


def test_close_writes_queued_verbs(store):
    async def scenario(writer):
        store.gate.clear()
        for n in range(50):
            writer.enqueue(submit(f"r{n}"), lambda *_: None)
        closing = asyncio.ensure_future(asyncio.to_thread(writer.close))
        store.gate.set()
        await closing
        assert all(store.run(f"r{n}") for n in range(50))

    with_writer(store, scenario)


def test_command_after_a_repeated_close_is_refused(store):
    async def scenario(writer):
        await asyncio.to_thread(writer.close)
        await asyncio.to_thread(writer.close)
        with pytest.raises(StoreUnavailable, match="closed"):
            await writer.execute(submit("r"))

    with_writer(store, scenario)


def test_close_does_not_wait_for_an_unavailable_store(store):
    async def scenario(writer):
        store.plan = [StoreUnavailable("gone")] * 1000
        asked = asyncio.ensure_future(writer.execute(submit("r")))
        await at_the_gate(store)
        await asyncio.to_thread(writer.close)
        with pytest.raises(StoreUnavailable):
            await asked

    with_writer(store, scenario)


def test_loop_that_was_closed_does_not_stop_the_writer(store):
    loop = asyncio.new_event_loop()
    writer = GroupCommitWriter(store, loop, patience=PATIENCE, batch_max=10)
    writer.start()
    store.gate.clear()
    writer.enqueue(submit("r"), lambda *_: None)
    store.arrived.get(timeout=WAIT_SECONDS)
    loop.close()
    store.gate.set()
    assert writer.execute_urgent(Sweep(), WAIT_SECONDS) == Swept((), (), ())
    writer.close()
    assert store.run("r") is not None


def test_renewals_and_other_writes_take_turns_while_the_store_fails(store):
    """Neither starves the other: a renewal goes first, but after it has failed the others have a turn."""

    async def scenario(writer):
        store.gate.clear()
        asked = asyncio.ensure_future(writer.execute(submit("r")))
        await at_the_gate(store)
        renewal = asyncio.ensure_future(
            asyncio.to_thread(writer.execute_urgent, Renew("w", 60.0), WAIT_SECONDS)
        )
        await wait_until_async(lambda: writer._urgent)
        store.plan = [StoreUnavailable("locked")] * 7
        store.gate.set()
        await asyncio.gather(asked, renewal)
        kinds = [type(batch[0]).__name__ for batch in store.calls]
        assert kinds[:7] == ["Submit", "Renew"] * 3 + ["Submit"]

    with_writer(store, scenario)


def test_write_that_waits_behind_failing_renewals_fails_at_its_own_deadline(store):
    async def scenario(writer):
        store.plan = [StoreUnavailable("locked")] * 1000
        over = threading.Event()

        def renew_for_ever():
            while not over.is_set():
                with contextlib.suppress(StoreUnavailable, queue.Empty):
                    writer.execute_urgent(Renew("w", 60.0), WAIT_SECONDS)

        renewing = asyncio.ensure_future(asyncio.to_thread(renew_for_ever))
        with pytest.raises(StoreUnavailable):
            await writer.execute(submit("r"))
        over.set()
        store.plan.clear()
        await renewing

    with_writer(store, scenario, patience=0.5)


def test_write_that_is_late_because_the_process_was_paused_is_written(store, clock):
    async def scenario(writer):
        store.gate.clear()
        asked = [asyncio.ensure_future(writer.execute(submit("first")))]
        await at_the_gate(store)
        asked.append(asyncio.ensure_future(writer.execute(submit("late"))))
        await wait_until_async(lambda: writer._queue)
        clock.forward(PATIENCE)
        store.gate.set()
        assert [outcome.new for outcome in await asyncio.gather(*asked)] == [True, True]

    with_writer(store, scenario)


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


def test_later_verbs_of_a_locked_run_do_not_overtake(store):
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


def test_store_that_blocks_every_write_counts_as_unavailable(store):
    async def scenario(writer):
        store.plan = [Blocked("a table is locked")] * 10_000
        outcomes = await asyncio.gather(
            *(writer.execute(submit(f"r{n}")) for n in range(50)), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
        store.plan.clear()
        assert (await writer.execute(submit("later"))).new

    with_writer(store, scenario, patience=0.4)


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
