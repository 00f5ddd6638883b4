"""A worker on the virtual clock: items of queues, limits and refused arguments."""

import asyncio
import math

import pytest
from worker_work import (  # noqa: F401 - a fixture
    WORKFLOWS,
    claimed_elsewhere,
    done,
    fresh_work,
    job,
    note,
    posting,
    worker,
    yielding,
    yielding_later,
)

from outlast import (
    Conflict,
    Draining,
    SettingsError,
    WrongStatus,
    current,
    sleep,
    step,
    workflow,
)
from outlast.testing import App


def test_item_is_acked_after_the_awaitable_of_its_handler():
    async def handle(item, seconds):
        await asyncio.sleep(seconds)
        done.append(item.payload)

    async def main(app):
        await app.queue("mail").put("ann")
        consuming = asyncio.create_task(app.queue("mail").consume(lambda item: handle(item, 1)))
        await asyncio.sleep(5)
        consuming.cancel()
        return await app.queue("mail").size()

    assert (App(ramp=0).do(main), done) == (0, ["ann"])


@pytest.mark.parametrize(
    "handler",
    [note, job, None, yielding, yielding_later],
    ids=["step", "workflow", "none", "generator", "async generator"],
)
def test_invalid_handler_is_refused_before_an_item_is_claimed(handler):
    async def main(app):
        with pytest.raises(TypeError, match=r"consume\(\) takes a"):
            await app.queue("mail").consume(handler)

    App().do(main)


def test_items_are_put_claimed_acked_and_nacked():
    async def main(app):
        queue = app.queue("q")
        assert await queue.put({"n": 1}, id="one") == "one"
        assert await queue.put({"n": 1}, id="one") == "one"
        with pytest.raises(Conflict):
            await queue.put({"n": 2}, id="one")
        await queue.put("late", delay=100)
        assert await queue.size() == 1, "what is due later is not counted"
        item = await queue.claim()
        assert (item.id, item.queue, item.payload, item.attempts) == ("one", "q", {"n": 1}, 1)
        assert item.fence > 0
        assert await queue.claim() is None
        await item.nack(delay=7, reason="not now")
        again = await queue.claim(wait=20)
        assert (again.id, again.attempts) == ("one", 2)
        await again.ack()
        late = await queue.claim(wait=math.inf)
        assert late.payload == "late"
        assert await queue.size() == 0
        await app.runs()
        return [info.id for info in await app.runs()], len(await app.runs(items=True))

    assert App().do(main) == ([], 2)


def test_acked_items_are_forgotten_after_their_time():
    """Also the last ones, after which nothing is acked any more."""

    async def main(app):
        queue = app.queue("q")
        for id in ("one", "two"):
            await queue.put(id, id=id)
            await (await queue.claim()).ack()
        await asyncio.sleep(50)
        assert len(await app.runs(items=True)) == 2
        await asyncio.sleep(20)
        return await app.runs(items=True)

    assert App(item_memory=60.0, poll=1.0, heartbeat=1.0, lease=1e6).do(main) == []


def test_item_that_fails_too_often_is_a_dead_letter_that_can_be_retried():
    dead = []

    async def main(app):
        queue = app.queue("q")
        await queue.put("bad", id="bad")
        tries = []

        async def handle(item):
            tries.append((item.attempts, round(app.clock() - start)))
            raise ValueError("broken")

        start = app.clock()
        consumer = asyncio.create_task(queue.consume(handle, concurrency=2))
        await asyncio.sleep(600)
        assert tries == [(1, 0), (2, 1), (3, 3)]
        (letter,) = await app.runs(status="dead", items=None)
        assert (letter.id, letter.reason) == ("q/bad", "ValueError('broken')")
        await app.retry("q/bad")
        await asyncio.sleep(600)
        assert len(tries) == 6
        assert await app.cancel("q/bad") == "cancelled"
        consumer.cancel()
        await asyncio.wait([consumer])

    App(max_attempts=3, ramp=0, on_dead=lambda info: dead.append(info.id)).do(main)
    assert dead == ["q/bad", "q/bad"]


def test_items_of_a_stopped_consumer_go_before_new_ones():
    async def main(app):
        queue = app.queue("q")
        await queue.put("slow", id="slow")
        started = asyncio.Event()

        async def handle(_):
            started.set()
            await asyncio.sleep(1000)

        consumer = asyncio.create_task(queue.consume(handle))
        await started.wait()
        await queue.put("new")
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        await asyncio.sleep(1)
        item = await queue.claim()
        return item.payload, item.attempts, len(app._open.in_flight.held())

    assert App(ramp=0).do(main) == ("slow", 1, 1)


def test_sync_handler_runs_in_a_thread():
    async def main(app):
        queue = app.queue("q")
        await queue.put_many(list(range(10)))
        consumer = asyncio.create_task(
            queue.consume(lambda item: done.append(item.payload), concurrency=3)
        )
        while len(done) < 10:
            await asyncio.sleep(1)
        consumer.cancel()
        await asyncio.wait([consumer])
        return await queue.size()

    assert App(ramp=0).do(main) == 0
    assert sorted(done) == list(range(10))


def test_put_is_refused_while_the_app_closes():
    async def main(app):
        app._open.shutdown.begun = True
        with pytest.raises(Draining, match="shutting down"):
            await app.queue("q").put(1)
        with pytest.raises(Draining):
            await app.queue("q").claim()

    App().do(main)


def test_claim_that_waits_for_an_item_ends_when_a_drain_begins():
    """It does not wait until it would look again, nor until the steps have ended."""

    @step
    async def takes_long() -> None:
        await asyncio.sleep(10)

    @workflow
    async def long() -> None:
        await takes_long()

    async def main(app):
        await app.start(long(), id="long")
        claiming = asyncio.create_task(app.queue("q").claim(wait=math.inf))
        await asyncio.sleep(1)
        draining = asyncio.create_task(app.drain("test"))
        with pytest.raises(Draining):
            await claiming
        assert not draining.done()
        await draining

    App(poll=1e5, heartbeat=1e4, lease=1e6).do(main)


def test_claimed_items_are_released_when_the_app_closes():
    app = App()

    async def main(app):
        await app.queue("q").put(1, id="one")
        return (await app.queue("q").claim()).attempts

    assert app.do(main) == 1
    row = app.store.run("q/one")
    assert (row.status, row.worker, row.deaths, row.interruptions) == ("queued", None, 0, 1)
    assert app.do(main) == 1, "an interruption is no attempt"


def test_queue_limits_can_be_changed_and_removed():
    async def main(app):
        queue = app.queue("q")
        await queue.limit(depth=5, concurrency=2)
        await queue.limit(depth=7)
        (info,) = await app.queues()
        assert (info.depth_max, info.concurrency_max) == (7, 2)
        await queue.limit(concurrency=None)
        (info,) = await app.queues()
        assert (info.depth_max, info.concurrency_max) == (7, None)
        await queue.limit(concurrency=0)
        (info,) = await app.queues()
        assert (info.depth_max, info.concurrency_max) == (7, 0)
        for bad in (0, -1, 1.5):
            with pytest.raises(ValueError, match=r"depth.* from 1,"):
                await queue.limit(depth=bad)
        for bad in (-1, 1.5, True):
            with pytest.raises(ValueError, match=r"concurrency.* from 0,"):
                await queue.limit(concurrency=bad)

    App().do(main)


def test_fence_grows_with_each_claim():
    fences = []

    @step
    async def look(number: int) -> int:
        fences.append(current().fence)
        return number

    @workflow(name="fenced")
    async def fenced() -> int:
        await look(1)
        await sleep(100)
        return await look(2)

    async def main(app):
        await (await app.submit(fenced())).result()

    App(worker=True, workflows=[fenced], ramp=0).do(main)
    assert fences[0] < fences[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 1.5},
        {"priority": True},
        {"priority": 10**30},
        {"delay": float("nan")},
        {"delay": "5"},
        {"wait": -1},
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_written(wrong):
    async def main(app):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            await app.submit(job("x"), **wrong)
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            await app.queue("q").put(1, **wrong)
        with pytest.raises(TypeError, match="a call of a workflow"):
            await app.submit(job)
        assert await app.runs(items=None) == []
        await app.queue("q").put(1)
        item = await app.queue("q").claim()
        for delay in (float("nan"), -1):
            with pytest.raises(SettingsError, match="delay"):
                await item.nack(delay=delay)
        await item.ack()
        with pytest.raises(WrongStatus, match="acked or nacked already"):
            await item.nack()
        for concurrency in (0, -1, 1.5):
            with pytest.raises(SettingsError, match="concurrency"):
                await app.queue("q").consume(print, concurrency=concurrency)

    App().do(main)
