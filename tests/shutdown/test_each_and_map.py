"""`each` and `map` in a drain."""

import asyncio
import gc
import threading
from contextlib import suppress

import pytest

from outlast import Draining, Outlast, step
from outlast import sync as blocking
from outlast.engine.in_flight_registry import InFlight
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until, wait_until_async

LEAVES_STEPS_SOON = {"grace": 120, "checkpoint_reserve": 0.2, "exit_reserve": 119.4}
"""Steps are asked to stop after 0.5 s and are left behind soon after."""


seen: list = []


@pytest.fixture(autouse=True)
def _clear():
    seen.clear()


@pytest.fixture
def file(tmp_path):
    return f"sqlite:///{tmp_path}/outlast.db"


@step
async def second() -> int:
    seen.append("second")
    return 2


def test_an_interrupted_item_of_each_is_left_and_an_ended_one_is_completed():
    async def main(app):
        async def loop(id, seconds):
            async for _ in app.each(["one", "two"], id=id):
                await asyncio.sleep(seconds)

        loops = [asyncio.create_task(loop("cut", 1000)), asyncio.create_task(loop("ends", 5))]
        await asyncio.sleep(1)
        report = await app.drain("test", grace=30)
        for task in loops:
            task.cancel()
        return report, await asyncio.gather(*loops, return_exceptions=True)

    report, (_, ended) = App().do(main)
    assert [(one.what, one.id) for one in report.left] == [("each", "cut")]
    assert report.completed == 1
    assert isinstance(ended, Draining)


def test_items_that_still_execute_in_threads_are_not_given_back(file):
    gate = threading.Event()

    def slow(item):
        seen.append(item)
        gate.wait(WAIT_SECONDS)

    def go_through(app):
        with suppress(Exception):  # the app is closed when it ends
            for item in app.each(["one"], id="each"):
                slow(item)

    def map_all(app):
        with suppress(Exception):
            app.map(slow, ["two"], id="map")

    with blocking.Outlast(file, signals=0, **LEAVES_STEPS_SOON) as app:
        threads = [
            threading.Thread(target=one, args=(app,), daemon=True) for one in (go_through, map_all)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(seen) == 2)
        app.drain("test")
    try:
        with blocking.Outlast(file, signals=0) as app:
            assert None not in {run.worker for run in app.runs()}
    finally:
        gate.set()
        for thread in threads:
            thread.join(WAIT_SECONDS)


def test_an_item_that_still_executes_at_close_is_reported_once(file):
    async def main():
        end = asyncio.Event()

        async def loop(app):
            async for _ in app.each(["one"], id="loop"):
                seen.append("begun")
                while not end.is_set():
                    with suppress(asyncio.CancelledError):
                        await end.wait()

        async with Outlast(file, signals=0, **LEAVES_STEPS_SOON) as app:
            going = asyncio.create_task(loop(app))
            await wait_until_async(lambda: seen)
            await app.drain("test")
        async with Outlast(file, signals=0) as app:
            (report,) = await app.drains()
        end.set()
        await asyncio.gather(going, return_exceptions=True)
        return report

    assert [(one.what, one.id) for one in asyncio.run(main()).left] == [("each", "loop")]


@pytest.mark.parametrize("kind", ["each", "map"])
def test_a_batch_refused_at_its_beginning_is_given_back(monkeypatch, kind):
    """The drain looks at what has begun just before it is refused, and keeps it."""

    def begin(self, fence):
        start(self, fence)
        app._shutdown.begin("test")
        return start(self, fence)

    start = InFlight.start

    async def main(app):
        monkeypatch.setattr(InFlight, "start", begin)

        async def loop():
            if kind == "map":
                await app.map(second, ["a"], id="batch")
            async for _ in app.each(["a"], id="batch"):
                seen.append("item")

        with pytest.raises(Draining):
            await loop()
        await app.drain()
        await asyncio.sleep(0.3)
        return app.store.run("batch"), app._open.in_flight.held()

    app = App()
    row, hands = app.do(main)
    assert (row.status, row.worker, hands, seen) == ("queued", None, [], [])


def test_loops_that_the_garbage_collector_ends_do_not_disturb_a_drain():
    """It ends them in any thread, between any two lines, such as those of the drain."""

    class Cycle:
        pass

    async def main():
        async with Outlast("memory:", signals=0, grace=600) as app:
            threshold = gc.get_threshold()
            gc.set_threshold(1)
            try:
                for number in range(1000):
                    cycle = Cycle()
                    cycle.itself, cycle.loop = cycle, aiter(app.each(range(2), id=str(number)))
                    assert await anext(cycle.loop) == 0
                    del cycle
                    if number == 900:
                        app._open.loop.call_soon(app._shutdown.begin, "test")
                raise AssertionError("no loop begins in a drain")
            except Draining:
                gc.collect()
                return await app.drain()
            finally:
                gc.set_threshold(*threshold)

    report = asyncio.run(main())
    assert (report.left, report.blocked) == ([], [])
