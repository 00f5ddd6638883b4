"""Items are known by their fence, and consumers that stop lose none."""

import asyncio
import threading
from contextlib import suppress

import pytest
from fleet_work import FAST, begun, gates, lose_the_worker, our_threads, statuses, ticks

from outlast import LeaseLost, Outlast
from outlast.store.commands import Claim, SetWaiting
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until_async


@pytest.mark.parametrize("word", ["ack", "nack"])
def test_late_ack_or_nack_of_a_lost_item_leaves_the_new_claim_alone(word):
    async def main(app):
        engine, queue = app._open, app.queue("q")
        await queue.put(1, id="x")
        stale = await queue.claim()
        await lose_the_worker(app)
        fresh = await queue.claim(wait=1000)
        assert fresh.fence > stale.fence
        with pytest.raises(LeaseLost):
            await getattr(stale, word)()
        assert [row.fence for row in engine.in_flight.held()] == [fresh.fence]
        await engine.sweeper.tidy()
        await fresh.ack()
        return await statuses(app, items=True), engine.in_flight.held()

    assert App().do(main) == ({"q/x": "done"}, [])


def test_handler_that_continues_after_nack_does_not_disturb_the_next_attempt(caplog):
    async def main(app):
        engine, attempts, second, first_ended = app._open, [], asyncio.Event(), asyncio.Event()

        async def handle(item):
            attempts.append(item.attempts)
            if item.attempts == 1:
                await item.nack(delay=0)
                await second.wait()
                return
            second.set()
            await first_ended.wait()
            await ticks(10)
            assert [row.fence for row in engine.in_flight.held()] == [item.fence]
            await engine.sweeper.tidy()  # it would release what no worker holds
            await asyncio.sleep(100)

        async def handler(item):
            try:
                await handle(item)
            finally:
                first_ended.set()

        await app.queue("q").put(1, id="x")
        consumer = asyncio.create_task(app.queue("q").consume(handler))
        await asyncio.sleep(1000)
        assert not engine.in_flight.held()
        assert not next(iter(engine.claimers.consumers)).claimer.slots.used
        consumer.cancel()
        await asyncio.wait([consumer])
        return attempts, await statuses(app, items=True)

    assert App(ramp=0).do(main) == ([1, 2], {"q/x": "done"})
    assert caplog.text == "", "nothing is logged twice"


def test_item_claimed_by_a_lost_worker_is_not_begun_under_the_old_fence():
    async def main(app):
        engine, handled, stale = app._open, [], []
        acquire = engine.acquirer.acquire

        async def too_late(command, slot=None):
            outcome = await acquire(command, slot)
            if isinstance(command, Claim) and outcome and not stale:
                stale.extend(row.fence for row in outcome)
                await lose_the_worker(app)
            return outcome

        engine.acquirer.acquire = too_late
        await app.queue("q").put(1, id="x")
        consumer = asyncio.create_task(
            app.queue("q").consume(lambda item: handled.append(item.fence), concurrency=1)
        )
        await asyncio.sleep(100)
        consumer.cancel()
        await asyncio.wait([consumer])
        assert not engine.in_flight.held()
        return len(handled), handled[0] > stale[0], await statuses(app, items=True)

    assert App(ramp=0).do(main) == (1, True, {"q/x": "done"})


@pytest.mark.parametrize("turns", range(7))
def test_cancelled_claim_leaves_its_item_to_the_next_claim(turns):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="x")
        claim = asyncio.create_task(queue.claim(wait=5))
        await ticks(turns)
        claim.cancel()
        await asyncio.wait([claim])
        if not claim.cancelled():  # it was quicker
            await claim.result().nack(delay=0)
        item = await queue.claim(wait=5)
        assert item is not None, "it was left in nobody's hands"
        assert [row.fence for row in app._open.in_flight.held()] == [item.fence]

    App().do(main)


@pytest.mark.parametrize("cancels", [1, 2])
def test_consumer_cancelled_while_a_thread_handles_an_item_loses_nothing(cancels):
    gate = gates["handler"] = threading.Event()
    before = our_threads()

    def handle(item):
        begun.append(item.attempts)
        gate.wait(WAIT_SECONDS)

    async def main():
        # A consumer that is cancelled once waits for its threads for so long.
        async with Outlast("memory:", **{**FAST, "close_timeout": 0.2}) as app:
            engine = app._open
            await app.queue("q").put(1, id="x")
            consumer = asyncio.create_task(app.queue("q").consume(handle))
            await wait_until_async(lambda: begun)
            for _ in range(cancels):
                consumer.cancel()
                await ticks(3)
            await asyncio.wait([consumer], timeout=WAIT_SECONDS)
            assert consumer.cancelled()
            assert len(engine.in_flight.held()) == 1, "a thread still has it"
            await engine.sweeper.tidy()
            gate.set()
            await wait_until_async(
                lambda: not engine.in_flight.held() and not engine.claimers.consumers
            )
            await engine.writer.execute(SetWaiting(0, 0, ()))  # what was said before is written
            assert await statuses(app, items=True) == {"q/x": "done"}
            assert await app.queue("q").claim() is None
            assert not engine.in_flight.hung_ids()
        await wait_until_async(lambda: our_threads() <= before)

    asyncio.run(main())
    assert begun == [1]


def test_consumer_cancelled_before_close_acks_an_item_that_a_thread_finishes(tmp_path):
    gate, store = gates.setdefault("handler", threading.Event()), f"sqlite:///{tmp_path}/outlast.db"

    def handle(item):
        begun.append(item.attempts)
        gate.wait(WAIT_SECONDS)

    async def main():
        async with Outlast(store, **{**FAST, "close_timeout": WAIT_SECONDS}) as app:
            engine = app._open
            await app.queue("q").put(1, id="x")
            consumer = asyncio.create_task(app.queue("q").consume(handle))
            await wait_until_async(lambda: begun)
            consumer.cancel()
            await ticks(3)

            async def end_it():
                await wait_until_async(lambda: engine.shutdown.closing)
                gate.set()

            ending = asyncio.create_task(end_it())
        await asyncio.wait([consumer, ending], timeout=WAIT_SECONDS)
        assert consumer.cancelled()
        assert not engine.in_flight.hung_ids()
        async with Outlast(store, **FAST) as app:
            assert await statuses(app, items=True) == {"q/x": "done"}
            assert len(await app.workers()) == 1

    asyncio.run(main())
    assert begun == [1]


@pytest.mark.parametrize("cancels", [1, 2])
def test_cancelled_consumer_releases_stopped_items_and_acks_finished_ones(cancels):
    async def handle(item):
        begun.append(item.id)
        if item.id == "stops":
            try:
                await asyncio.sleep(1e6)
            finally:
                await asyncio.sleep(1)
        else:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1e6)

    async def main(app):
        engine = app._open
        await app.queue("q").put_many([1, 2], ids=["stops", "ends"])
        consumer = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(1)
        assert len(begun) == 2
        for _ in range(cancels):
            consumer.cancel()
            await asyncio.sleep(0.1)
        await asyncio.wait([consumer])
        await asyncio.sleep(10)
        assert not engine.in_flight.held()
        assert not engine.claimers.consumers
        return await statuses(app, items=True)

    assert App(ramp=0).do(main) == {"q/stops": "queued", "q/ends": "done"}


def test_handler_that_raises_a_base_exception_fails_like_any_other():
    class Stop(BaseException):
        pass

    async def handle(item):
        begun.append(item.id)
        if item.id != "good":
            raise Stop

    async def main(app):
        engine = app._open
        await app.queue("q").put_many([1, 2, 3], ids=["a", "b", "good"])
        consumer = asyncio.create_task(app.queue("q").consume(handle, concurrency=1))
        await asyncio.sleep(100)
        assert not engine.in_flight.held()
        assert not next(iter(engine.claimers.consumers)).claimer.slots.used
        consumer.cancel()
        await asyncio.wait([consumer])
        return await statuses(app, items=None)

    assert App(ramp=0, max_attempts=2).do(main) == {"q/a": "dead", "q/b": "dead", "q/good": "done"}
    assert sorted(begun) == ["a", "a", "b", "b", "good"]
