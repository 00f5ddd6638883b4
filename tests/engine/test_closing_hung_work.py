"""An app closes while a step, an item or a loop still executes: nothing is executed twice."""

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress

import pytest

from outlast import Outlast, step, workflow
from outlast.api.workflow import Workflow
from outlast.engine.engine import Engine
from outlast.shutdown.phases import AppPhase
from outlast.store.commands import Sweep
from support.waiting import WAIT_SECONDS, wait_until_async


async def cancelled(block: asyncio.Task[None]) -> None:
    """As a time-out around the block does, while it is left."""
    block.cancel()
    with pytest.raises(asyncio.CancelledError):
        await block


def give_up(engine: Engine) -> None:
    """What the end of the process does for one that could not be left: its loop has ended before."""
    engine.worker._stop()
    engine.close_store()


def hanging_until(begun: threading.Event, ends: threading.Event) -> Workflow[[], None]:
    @step
    def hangs() -> None:
        begun.set()
        ends.wait(WAIT_SECONDS)

    @workflow
    async def hanging() -> None:
        await hangs.aio()

    return hanging


@pytest.mark.parametrize("drain", [False, True])
def test_run_with_a_running_step_is_kept_when_leaving_the_block_is_cancelled(tmp_path, drain):
    """If it were released, another process would execute it beside the thread that has not ended."""
    store, begun, ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()

    hanging = hanging_until(begun, ends)

    async def block(app: Outlast) -> None:
        async with app:
            await app.start(hanging(), id="run")
            await wait_until_async(begun.is_set)
            if drain:
                app._shutdown.begin("now", grace=2.0)

    async def main() -> None:
        app = Outlast(store, close_timeout=0.3)
        leaving = asyncio.create_task(block(app))
        await wait_until_async(begun.is_set)
        engine = app._open
        await wait_until_async(
            lambda: engine.shutdown.announced.done() if drain else engine.shutdown.closing
        )
        await cancelled(leaving)
        async with Outlast(store) as other:
            assert [run.status for run in await other.runs()] == ["running"]
            ends.set()
            await wait_until_async(lambda: not engine.in_flight.hung_ids())  # then it is released
            assert (
                await (await other.start(hanging(), id="run")).result(timeout=WAIT_SECONDS) is None
            )

    asyncio.run(main())


@pytest.mark.parametrize("how", ["its main function returns", "a second Ctrl-C ends it"])
def test_run_with_a_running_step_is_kept_when_the_loop_ends(tmp_path, how):
    """The end of a loop cancels every task that it finds."""
    store, begun, ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()

    hanging = hanging_until(begun, ends)

    async def block(app: Outlast) -> None:
        async with app:
            await app.start(hanging(), id="run")
            await wait_until_async(begun.is_set)

    async def main() -> None:
        app = Outlast(store, close_timeout=0.3, signals=0)
        leaving.append(asyncio.create_task(block(app)))
        await wait_until_async(begun.is_set)
        engine = app._open
        engines.append(engine)
        await wait_until_async(lambda: engine.shutdown.closing)
        if how == "a second Ctrl-C ends it":
            raise KeyboardInterrupt

    async def look() -> list[str]:
        async with Outlast(store) as other:
            return [run.status for run in await other.runs()]

    leaving, engines = list[asyncio.Task[None]](), list[Engine]()
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(main())
        assert asyncio.run(look()) == ["running"]
    finally:
        ends.set()
        give_up(*engines)


def test_each_that_ends_while_the_app_closes_releases_its_worker(tmp_path):
    store, begun, ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        ends.wait(WAIT_SECONDS)

    async def loop(app: Outlast) -> None:
        async for _ in app.each(["a"], id="each"):
            await asyncio.to_thread(hang)

    async def main() -> None:
        async def end() -> None:
            assert engine.in_flight.hung_ids() == {"each"}
            ends.set()
            await asyncio.wait([task])

        async with Outlast(store, close_timeout=0.5, signals=0) as app:
            engine, task = app._open, asyncio.create_task(loop(app))
            app.on_cleanup(end)
            await wait_until_async(begun.is_set)
        assert engine.in_flight.hung_ids() == set()
        assert app._lifecycle._coordinator.app_phase is AppPhase.CLOSED
        async with Outlast(store, signals=0) as other:
            assert len(await other.workers()) == 1

    asyncio.run(main())


def test_worker_stays_until_both_handlers_of_a_reclaimed_item_end(tmp_path):
    store, ends = f"sqlite:///{tmp_path}/o.db", [threading.Event(), threading.Event()]
    begun: list[int] = []

    def hang(_: object) -> None:
        begun.append(1)
        ends[len(begun) - 1].wait(WAIT_SECONDS)

    async def main() -> None:
        async with Outlast(store, close_timeout=0.2, signals=0) as app:
            engine, queue = app._open, app.queue("q")
            await queue.put(1, id="item")
            consuming = asyncio.create_task(queue.consume(hang))
            await wait_until_async(lambda: len(begun) == 1)
            lost = engine.worker.id
            with closing(sqlite3.connect(f"{tmp_path}/o.db", isolation_level=None)) as other:
                other.execute("DELETE FROM workers WHERE id = ?", (lost,))
            await engine.writer.execute(Sweep())
            await engine.worker.register(instead_of=lost)
            await wait_until_async(lambda: len(begun) == 2)
        ends[0].set()
        await wait_until_async(
            lambda: len([one for one in engine.claimers.consumers for _ in one.under_way]) == 1
        )
        async with Outlast(store, signals=0) as other:
            assert [run.status for run in await other.runs(items=None)] == ["running"]
        ends[1].set()
        await asyncio.wait([consuming])
        await wait_until_async(lambda: not engine.in_flight.hung_ids())

    try:
        asyncio.run(main())
    finally:
        for end in ends:
            end.set()


@pytest.mark.parametrize("kind", ["run", "item", "map", "each"])
def test_worker_kept_for_hung_work_is_removed_when_that_work_ends(tmp_path, kind):
    store, begun, ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        begun.set()
        ends.wait(WAIT_SECONDS)

    @step
    def hangs() -> None:
        hang()

    @workflow
    async def hanging() -> None:
        await hangs.aio()

    async def execute(app: Outlast) -> None:
        if kind == "run":
            await (await app.start(hanging(), id="run")).result()
        elif kind == "item":
            await app.queue("q").put(1)
            await app.queue("q").consume(hang)
        elif kind == "map":
            await app.map(hang, ["a"], id="map")
        else:
            async for _ in app.each(["a"], id="each"):
                await asyncio.to_thread(hang)

    async def workers() -> int:
        async with Outlast(store, signals=0) as other:
            return len(await other.workers()) - 1

    async def main() -> None:
        async with Outlast(store, close_timeout=0.2, signals=0) as app:
            task = asyncio.create_task(execute(app))
            await wait_until_async(begun.is_set)
        assert await workers() == 1
        ends.set()
        await asyncio.wait([task])
        async with asyncio.timeout(WAIT_SECONDS):
            while await workers():
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_worker_stays_while_an_item_still_executes_after_a_hung_run_ended(tmp_path):
    """If the worker were deregistered, another one would get the item while the handler still executes."""
    store, ends, item_ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()
    begun: set[str] = set()

    @step
    def hangs() -> None:
        begun.add("step")
        ends.wait(WAIT_SECONDS)

    @workflow
    async def hanging() -> None:
        await hangs.aio()

    def handle(_: object) -> None:
        begun.add("item")
        item_ends.wait(WAIT_SECONDS)

    async def main() -> None:
        async with Outlast(store, close_timeout=0.3) as app:
            engine, queue = app._open, app.queue("q")
            await queue.put(1, id="item")
            consumer = asyncio.create_task(queue.consume(handle))
            await app.start(hanging(), id="run")
            await wait_until_async(lambda: len(begun) == 2)

            async def end_what_hung() -> None:
                await wait_until_async(
                    lambda: engine.in_flight.hung_ids() == {"run"}
                )  # from here on it waits for the item
                ends.set()

            ending = asyncio.create_task(end_what_hung())
        await ending
        async with Outlast(store) as other:
            found = {run.id: run.status for run in await other.runs(items=None)}
        assert found == {"run": "queued", "q/item": "running"}
        item_ends.set()
        await asyncio.wait([consumer])

    asyncio.run(main())
