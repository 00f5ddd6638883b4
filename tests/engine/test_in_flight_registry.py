"""The registry of what this process has in flight, and the slots that its claims use."""

import asyncio
import gc
import threading

import pytest

from outlast import Outlast, step, workflow
from outlast.engine.in_flight_registry import HeldState, InFlight
from outlast.engine.isolation import Isolation
from outlast.store.commands import Claim, Settle
from outlast.store.rows import RunRow
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until_async


def row(fence, id="run", **fields) -> RunRow:
    return RunRow(**{**dict.fromkeys(RunRow._fields), "fence": fence, "id": id, **fields})


def holding(*rows, **options) -> InFlight:
    in_flight = InFlight(**options)
    in_flight.claim_submitted()
    in_flight.claim_answered(rows)
    return in_flight


def test_work_whose_end_is_being_written_is_not_held_and_not_released_by_a_drain():
    in_flight = holding(row(1), row(2, "other"))
    in_flight.start(1)
    in_flight.ending(1)
    assert not in_flight.is_held(1)
    assert not in_flight.holds_run("run")
    assert in_flight.held() == [row(2, "other")]
    assert in_flight.is_empty(but=["other"])
    assert in_flight.begin_drain() == (1,), "the one that was only claimed can be released"


def test_a_lost_claim_stays_registered_while_its_code_executes():
    in_flight = holding(row(1, worker="w"), row(2, worker="w"), row(3, worker="other"))
    in_flight.start(1)
    in_flight.lose("w")
    assert (in_flight.state(1), in_flight.state(2)) == (HeldState.ENDING, None)
    assert in_flight.held() == [row(3, worker="other")]


@pytest.mark.parametrize("ends", [InFlight.ending, InFlight.drop])
def test_the_end_of_hung_work_is_reported_once(ends):
    ended = []
    in_flight = holding(row(1), on_hung_ended=lambda: ended.append(in_flight.hung_ids()))
    in_flight.start(1)
    in_flight.hang(row(1))
    assert (in_flight.hung_ids(), in_flight.is_held(1)) == ({"run"}, True)
    ends(in_flight, 1)
    in_flight.drop(1)
    assert ended == [set()]


def test_work_that_hangs_after_its_claim_was_lost_is_registered_again():
    in_flight = holding(row(1))
    in_flight.drop(1)
    in_flight.hang(row(1))
    assert in_flight.hung_ids() == {"run"}


def test_a_drain_between_the_two_halves_of_a_start_keeps_the_fence_or_refuses_the_start():
    """The drain begins in another thread, at any line of `start`."""

    class Interrupted(InFlight):
        @property
        def draining(self):
            if self.drain_now:
                self.drain_now = False
                self.kept = self.begin_drain()
            return self.begun

        @draining.setter
        def draining(self, begun):
            self.begun = begun

        drain_now, kept = False, ()

    in_flight = Interrupted()
    in_flight.claim_submitted()
    in_flight.claim_answered([row(1)])
    in_flight.drain_now = True
    assert in_flight.start(1) or in_flight.state(1) is HeldState.CLAIMED
    assert 1 in in_flight.kept, "the state was set before the drain was noticed"
    assert not in_flight.start(1)


def test_the_end_of_an_isolated_run_lets_others_in_even_if_its_claim_was_lost():
    ended = []
    in_flight = holding(row(1))
    isolation = Isolation(in_flight, None, patience=0.0, on_ended=lambda: ended.append(1))
    isolation.reserve()
    in_flight.drop(1)
    isolation.settle_reservation(1)
    assert isolation.suspends_claims
    in_flight.drop(1)
    assert (isolation.suspends_claims, ended) == (False, [1])


def test_other_threads_read_while_the_garbage_collector_ends_claims():
    """A lock would deadlock here, and an iteration over the registry would fail."""

    class Loop:
        """An `each` that only the garbage collector finds."""

        def __init__(self, fence):
            self.fence, self.itself = fence, self

        def __del__(self):
            in_flight.ending(self.fence)
            in_flight.drop(self.fence)

    def read():
        try:
            while not over.is_set():
                reads.append(len(in_flight.begin_drain()) + len(in_flight.held()))
        except BaseException as error:
            failures.append(error)

    in_flight, over, reads, failures = InFlight(), threading.Event(), [], []
    reader, threshold = threading.Thread(target=read), gc.get_threshold()
    gc.set_threshold(1)
    try:
        reader.start()
        for fence in range(1_000):
            in_flight.claim_submitted()
            in_flight.claim_answered([row(fence), row(-fence - 1)])
            in_flight.start(fence)
            Loop(fence)
            in_flight.drop(-fence - 1)
    finally:
        over.set()
        reader.join()
        gc.set_threshold(*threshold)
    gc.collect()
    assert (failures, in_flight.held()) == ([], [])
    assert reads


def test_the_next_claim_is_queued_behind_the_end_of_the_run_before_it():
    """The slot is free when nothing of the run executes, before its end is written."""
    gate, done = threading.Event(), []

    @step
    async def one(label: str) -> None:
        done.append(label)

    @workflow
    async def job(label: str) -> None:
        await one(label)

    async def main():
        async with Outlast(
            "memory:", worker=True, workflows=[job], concurrency=1, ramp=0, poll=3600.0
        ) as app:
            engine, commit, settled = app._open, app._open.store.commit, []

            def held_up(commands):
                if any(isinstance(command, Settle) for command in commands):
                    settled.append(list(commands))
                    gate.wait(WAIT_SECONDS)
                return commit(commands)

            engine.store.commit = held_up
            runs = await app.submit_many([job("a"), job("b")])
            await wait_until_async(lambda: settled)
            # The writer may have taken the claim in the same batch, behind the Settle.
            await wait_until_async(
                lambda: any(
                    isinstance(command, Claim)
                    for command in (*settled[0], *(one.command for one in engine.writer._queue))
                )
            )
            assert len(done) == 1
            assert engine.claimers.own.slots.used == 0
            assert engine.in_flight.held(), "the claim lasts until its end is written"
            gate.set()
            for run in runs:
                await run.result(timeout=WAIT_SECONDS)

    try:
        asyncio.run(main())
    finally:
        gate.set()
    assert sorted(done) == ["a", "b"]


@pytest.mark.parametrize("outcome", ["acked", "lost"])
def test_a_handler_that_goes_on_after_its_ack_keeps_its_slot(outcome):
    async def main(app):
        at_once, most = 0, 0

        async def handle(item):
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            try:
                if outcome == "acked":
                    await item.ack()
                else:
                    app._open.in_flight.lose(app._open.worker.id)
                await asyncio.sleep(10)
            finally:
                at_once -= 1

        engine = app._open
        await app.queue("q").put_many(range(4))
        consuming = asyncio.create_task(app.queue("q").consume(handle, concurrency=2))
        await asyncio.sleep(5)
        (consumer,) = engine.claimers.consumers
        assert (consumer.claimer.slots.used, engine.in_flight.held()) == (2, [])
        await asyncio.sleep(100)
        assert (consumer.claimer.slots.used, engine.in_flight.held()) == (0, [])
        assert engine.in_flight.in_state(HeldState.ENDING) == []
        consuming.cancel()
        await asyncio.wait([consuming])
        return most, app.store.depth("q")

    assert App(ramp=0).do(main) == (2, 0)
