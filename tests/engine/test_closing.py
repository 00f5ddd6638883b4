"""Closing an app releases its runs as interruptions."""

import asyncio

import pytest

from outlast import Evicted, StoreUnavailable, current, sleep, step, workflow

done: list[str] = []
seen: list[object] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()
    seen.clear()


@step(retries=3)
async def work(label: str, seconds: float = 0.0) -> str:
    done.append(f"{label} {current().attempt}")
    await asyncio.sleep(seconds)
    return label


@workflow
async def report() -> list[str]:
    try:
        return [await work("a"), await work("slow", 100)]
    except BaseException as error:
        seen.append(type(error))
        raise


def test_closing_releases_the_run_as_an_interruption_without_using_an_attempt(world):
    async def main(app) -> None:
        await app.start(report(), id="run")
        await asyncio.sleep(10)

    world.do(main)
    row = world.row()
    assert (row.status, row.worker, row.deaths, row.interruptions) == ("queued", None, 0, 1)
    assert world.kinds() == ["step", "interruption"]
    assert seen == [Evicted]
    world.restart()
    assert world.run(report()) == ["a", "slow"]
    assert done == ["a 1", "slow 1", "slow 1"], "an interruption uses up no attempt"


def test_closing_cancels_the_running_step_body(world):
    stopped = []

    @step
    async def slow() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            stopped.append(1)
            raise

    @workflow
    async def one() -> None:
        await slow()

    async def main(app) -> None:
        await app.start(one(), id="run")
        await asyncio.sleep(10)

    world.do(main)
    assert stopped == [1]


def test_another_process_resumes_the_run_after_closing(file_world):
    async def main(app) -> list[str]:
        async with file_world.another() as first:
            await first.start(report(), id="run")
            await asyncio.sleep(10)
            second = await app.start(report(), id="run")
        return await second.result(timeout=1000)

    assert file_world.do(main) == ["a", "slow"]
    assert done == ["a 1", "slow 1", "slow 1"]
    assert file_world.row().deaths == 0


def test_closing_wakes_a_waiter_with_an_error(world):
    async def main(app) -> None:
        run = await app.start(report(), id="run")
        seen.append(asyncio.create_task(run.result()))
        await asyncio.sleep(10)

    async def outer() -> None:
        async with world.app as app:
            await main(app)
        with pytest.raises((StoreUnavailable, asyncio.CancelledError)):
            await seen[-1] if isinstance(seen[-1], asyncio.Task) else await seen[0]

    world.clock.run(outer())
    assert world.status() == "queued"


def test_finally_block_at_closing_records_nothing_and_starts_no_step(world):
    @workflow
    async def tidy() -> None:
        try:
            await sleep(1000)
        finally:
            try:
                await work("tidy")
            except BaseException as error:
                seen.append(type(error))
                raise

    async def main(app) -> None:
        await app.start(tidy(), id="run")
        await asyncio.sleep(10)

    world.do(main)
    assert seen == [Evicted]
    assert done == []
    assert world.kinds() == ["interruption"]


def test_workflow_that_swallows_its_eviction_records_nothing_more(world):
    @workflow
    async def greedy() -> str:
        for _ in range(3):
            try:
                await work("x", 1000)
            except BaseException as error:
                seen.append(type(error))
        return "done, I say"

    async def main(app) -> None:
        await app.start(greedy(), id="run")
        await asyncio.sleep(10)

    world.do(main)
    assert set(seen) == {Evicted}
    assert world.status() == "queued"
    assert world.kinds() == ["interruption"]
