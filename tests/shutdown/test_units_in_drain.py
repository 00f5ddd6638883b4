"""Units of work in a drain: their steps start until steps are asked to stop."""

import asyncio

from drain_tools import act, begun, chain, drained

from outlast import sleep, step, workflow
from outlast.api.unit import unit


def test_steps_of_a_unit_start_and_the_run_is_released_after_it(world):
    @workflow
    async def flow() -> list[str]:
        async with unit("order"):
            first = [await act("pay", 3), await act("ship", 3)]
        return [*first, await act("thank")]

    report, _ = drained(world, flow())
    assert (begun, report.released, report.left) == (["pay", "ship"], 1, [])
    world.restart()
    assert world.run(flow()) == ["pay", "ship", "thank"]
    assert begun == ["pay", "ship", "thank"]


def test_a_run_started_within_a_unit_is_not_part_of_it(world):
    async def main(app):
        async with app.unit("outside"):
            await app.start(chain(), id="run")
            await asyncio.sleep(1)
        await app.drain("test")

    world.do(main)
    assert begun == ["a"]


def test_inner_steps_of_a_run_started_within_a_unit_are_not_part_of_it(world):
    @step
    async def outer() -> list[str]:
        return [await act("a", 5), await act("b", 5)]

    @workflow
    async def flow() -> list[str]:
        return await outer()

    async def main(app):
        async with app.unit("outside"):
            await app.start(flow(), id="run")
            await asyncio.sleep(1)
        await app.drain("test")

    world.do(main)
    assert begun == ["a"]


def test_a_unit_starts_no_step_after_steps_are_told_to_stop(world):
    @step
    async def stubborn() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(2)

    @workflow
    async def flow() -> None:
        async def order():
            async with unit("order"):
                await sleep(16.5)
                await act("too late", 100)

        await asyncio.gather(order(), stubborn())

    report, _ = drained(world, flow(), grace=20)
    assert begun == []
    assert (report.checkpointed, report.left) == (1, [])
