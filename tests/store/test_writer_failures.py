"""What the writer does when commits fail or stay unknown."""

import asyncio
import contextlib
import threading

import pytest
from writer_tools import (
    PATIENCE,
    Clock,
    WatchedStore,
    at_the_gate,
    moved_clock,
    submit,
    with_writer,
)

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.commands import (
    Record,
    RegisterWorker,
    Renew,
    Settle,
    Sweep,
    Swept,
)
from outlast.store.protocol import CommitUnknown
from outlast.store.writer.group_commit_writer import GroupCommitWriter
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


def test_close_writes_queued_commands(store):
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
                with contextlib.suppress(StoreUnavailable):
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
