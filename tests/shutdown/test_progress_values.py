"""Values that a step may save as progress."""

import asyncio

import pytest
from pydantic import BaseModel

from outlast import LimitExceeded, NotInRun, Unrecordable, step, workflow
from outlast.api.context import progress
from outlast.testing import App

seen: list = []


@pytest.fixture(autouse=True)
def _clear():
    seen.clear()


def test_a_saved_value_is_written_as_it_was_when_saved(world):
    """A value that the step goes on to change is saved as it was."""

    @step
    async def build() -> int:
        async with progress(dict[str, int]) as p:
            seen.append(p.value)
            state = {"read": 0, "written": 0}
            while True:
                state["read"] += 1
                await asyncio.sleep(1)
                state["written"] += 1
                p.save(state)

    @workflow
    async def flow() -> int:
        return await build()

    world.die(flow(), after=10.7)
    world.die(flow(), after=0.5)
    assert len(seen) == 2
    assert seen[1]["read"] == seen[1]["written"] > 5


def test_a_model_can_be_saved(world):
    class State(BaseModel):
        name: str
        count: int = 0

    @step
    async def build() -> State:
        async with progress(State) as p:
            state = p.value or State(name="n")
            seen.append(state.count)
            for _ in range(6):
                state.count += 1
                p.save(state)
                await asyncio.sleep(1)
            return state

    @workflow
    async def flow() -> State:
        return await build()

    world.die(flow(), after=3.5)
    assert world.run(flow()).count == 10
    assert seen == [0, 4]


@pytest.mark.parametrize("bad", [object(), {"x": object()}, [b"\xff"], 5j])
def test_a_value_that_cannot_be_recorded_raises_in_the_step(world, bad):
    @step
    async def wrong() -> str:
        with pytest.raises(Unrecordable):
            async with progress() as p:
                p.save(bad)
        return "went on"

    @workflow
    async def flow() -> str:
        return await wrong()

    assert world.run(flow()) == "went on"


@pytest.mark.parametrize("bad", [{"x": object()}, 5j])
def test_a_value_that_cannot_be_recorded_raises_in_a_thread(world, bad):
    @step
    def wrong() -> str:
        with pytest.raises(Unrecordable):
            with progress() as p:
                p.save(bad)
        return "went on"

    @workflow
    async def flow() -> str:
        return await wrong.aio()

    assert world.run(flow()) == "went on"


@pytest.mark.parametrize("value", ["x" * 2000, ["x" * 2000]])
def test_a_value_that_is_too_large_raises_in_the_step(world, value):
    @step
    async def wrong() -> str:
        with pytest.raises(LimitExceeded, match="value_size_max"):
            async with progress() as p:
                p.save(value)
        return "went on"

    @workflow
    async def flow() -> str:
        return await wrong()

    world.settings = {"value_size_max": 1000}
    assert world.run(flow()) == "went on"


def test_a_bad_value_does_not_replace_the_last_good_one(world):
    @step
    async def mixed() -> None:
        async with progress() as p:
            seen.append(p.value)
            p.save({"good": 1})
            await asyncio.sleep(1)
            with pytest.raises(Unrecordable):
                p.save({"bad": object()})
            await asyncio.sleep(1000)

    @workflow
    async def flow() -> None:
        await mixed()

    world.die(flow(), after=10)
    world.die(flow(), after=0.5)
    assert seen == [None, {"good": 1}]


def test_a_saved_value_that_no_longer_fits_its_type_raises(world):
    kind = str

    @step
    async def changed() -> str:
        async with progress(kind) as p:
            seen.append(p.value)
            p.save("text")
            await asyncio.sleep(10)
            return "end"

    @workflow
    async def flow() -> str:
        return await changed()

    world.die(flow(), after=5)
    kind = int
    with pytest.raises(Unrecordable):
        world.run(flow())


def test_progress_outside_a_step_raises():
    with pytest.raises(NotInRun):
        progress(str)

    @workflow
    async def flow() -> None:
        progress(str)

    with pytest.raises(NotInRun):
        App().run(flow())


@pytest.mark.parametrize("sync", [False, True])
def test_a_value_of_another_type_raises_at_the_end_of_the_block(world, sync):
    @step
    def in_thread() -> str:
        with pytest.raises(Unrecordable, match="not int"):
            with progress(int) as p:
                p.save("text")
        return "went on"

    @step
    async def on_loop() -> str:
        with pytest.raises(Unrecordable, match="not int"):
            async with progress(int) as p:
                p.save("text")
        return "went on"

    @workflow
    async def flow() -> str:
        return await (in_thread.aio() if sync else on_loop())

    assert world.run(flow()) == "went on"
