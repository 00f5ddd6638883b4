"""Workflows that spin or deadlock are parked with a reason."""

import asyncio

import pytest

from outlast import (
    RunParked,
    step,
    workflow,
)


@step
async def work(label: str = "") -> str:
    return label


@workflow
async def other() -> str:
    return await work("other")


def test_a_workflow_that_spins_is_parked_with_a_reason(world, monkeypatch):
    monkeypatch.setattr("outlast.execution.delivery.CALLBACKS_MAX", 10_000)

    @workflow
    async def one() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(RunParked, match="without waiting"):
        world.run(one())
    assert world.status() == "parked"


def test_deadlocked_workflow_is_parked_with_a_reason(world):
    @workflow
    async def one() -> None:
        await work("first")
        await asyncio.Event().wait()

    with pytest.raises(RunParked, match="never come"):
        world.run(one())
    assert world.kinds() == ["step"]


def test_a_deadlock_of_two_tasks_is_parked(world):
    @workflow
    async def one() -> None:
        first, second = asyncio.Lock(), asyncio.Lock()

        async def take(a: asyncio.Lock, b: asyncio.Lock) -> None:
            async with a:
                await work()
                async with b:
                    pass

        await asyncio.gather(take(first, second), take(second, first))

    with pytest.raises(RunParked, match="never come"):
        world.run(one())


def test_stuck_run_does_not_block_other_runs(world):
    @workflow
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def both(app) -> str:
        await app.start(stuck(), id="stuck")
        return await (await app.start(other(), id="other")).result(timeout=100)

    assert world.do(both) == "other"
