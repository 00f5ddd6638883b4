"""The objects of a run that has ended are freed at once, without the garbage collector."""

import asyncio
import gc
import weakref

import pytest

from outlast import Outlast, receive, sleep, step, workflow

LOOPS = []


@step
async def double(x: int) -> int:
    return 2 * x


@step
def triple(x: int) -> int:
    return 3 * x


@workflow
async def busy(x: int) -> int:
    LOOPS.append(weakref.ref(asyncio.get_running_loop()))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(double(x)), group.create_task(triple.aio(x))]
    await sleep(0.001)
    return sum(task.result() for task in tasks) + await receive("more")


@pytest.fixture
def without_collector():
    LOOPS.clear()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_run_that_has_returned_is_freed_at_once(address, without_collector):
    async def main():
        async with Outlast(address) as app:
            run = await app.start(busy(2), id="r")
            await app.send("r", "more", 1)
            assert await run.result() == 11
            # The tasks of the engine that ended the run end in the next turns of the event loop.
            await app.runs()
            assert [loop() for loop in LOOPS] == [None]

    asyncio.run(main())
