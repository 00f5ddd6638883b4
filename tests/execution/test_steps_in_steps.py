"""Steps inside steps are recorded under the outer step and reused."""

import asyncio

import pytest

from outlast import current, step, workflow

done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done():
    done.clear()


@step
async def inner(label: str) -> str:
    done.append(label)
    return label.upper()


def flow(outer):
    @workflow(name="flow")
    async def one() -> object:
        return await outer()

    return one


def test_an_inner_result_is_used_when_the_outer_step_is_redone_after_a_death(world):
    @step
    async def outer() -> str:
        first = await inner("a")
        await asyncio.sleep(100)
        return first + await inner("b")

    one = flow(outer)
    world.die(one(), after=50)
    assert world.kinds() == ["inner"]
    assert world.run(one()) == "AB"
    assert done == ["a", "b"]
    assert world.replays(one()) == "AB"


def test_an_inner_result_is_used_when_the_outer_step_is_retried(world):
    @step(retries=2, backoff=1.0)
    async def outer() -> str:
        first = await inner("a")
        if current().attempt < 3:
            raise OSError
        return first

    assert world.run(flow(outer)()) == "A"
    assert done == ["a"]


def test_an_inner_failure_is_part_of_the_outer_attempt_and_not_used_again(world):
    @step
    async def unsure() -> str:
        done.append("unsure")
        if len(done) < 2:
            raise OSError("first time")
        return "sure"

    @step(retries=1, backoff=1.0)
    async def outer() -> str:
        return await unsure()

    assert world.run(flow(outer)()) == "sure"
    assert done == ["unsure", "unsure"]


def test_an_inner_step_has_its_own_retries(world):
    @step(retries=3, backoff=0.1)
    async def flaky() -> int:
        done.append("x")
        if current().attempt < 3:
            raise OSError
        return current().attempt

    @step
    async def outer() -> int:
        return await flaky()

    assert world.run(flow(outer)()) == 3
    assert len(done) == 3


def test_inner_steps_are_told_apart_by_their_arguments_because_a_body_is_not_deterministic(world):
    order = ["a", "b"]

    @step
    async def outer() -> list[str]:
        results = [await inner(label) for label in order]
        await asyncio.sleep(100)
        return results

    one = flow(outer)
    world.die(one(), after=50)
    order.reverse()
    assert world.run(one()) == ["B", "A"]
    assert done == ["a", "b"]


def test_repeated_inner_call_executes_twice(world):
    @step
    async def outer() -> int:
        await inner("a")
        await inner("a")
        await asyncio.gather(inner("a"), inner("a"))
        return len(done)

    assert world.run(flow(outer)()) == 4
    assert world.kinds().count("inner") == 4


def test_inner_steps_of_two_outer_calls_are_their_own(world):
    @step
    async def outer(n: int) -> str:
        return await inner("a")

    @workflow
    async def one() -> list[str]:
        return await asyncio.gather(outer(1), outer(2), outer(2))

    assert world.run(one()) == ["A", "A", "A"]
    assert done == ["a", "a", "a"]
    assert world.replays(one()) == ["A", "A", "A"]


def test_steps_three_levels_deep_are_recorded_once(world):
    @step
    async def middle() -> str:
        return await inner("x") + await inner("y")

    @step
    async def outer() -> str:
        first = await middle()
        await asyncio.sleep(100)
        return first

    one = flow(outer)
    world.die(one(), after=50)
    assert world.run(one()) == "XY"
    assert done == ["x", "y"]


def test_tasks_in_a_body_may_call_steps(world):
    @step
    async def outer() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(inner(label)) for label in "abc"]
        return [task.result() for task in tasks]

    assert world.run(flow(outer)()) == ["A", "B", "C"]


def test_a_sync_step_calls_a_sync_step(world):
    @step
    def low() -> str:
        done.append("low")
        return "low"

    @step
    def high() -> str:
        return low() + low()

    @workflow
    async def one() -> str:
        return await high.aio()

    assert world.run(one()) == "lowlow"
    assert world.replays(one()) == "lowlow"
    assert done == ["low", "low"]


def test_current_names_the_step_and_the_run_and_the_attempt(world):
    @step(retries=1, backoff=0.1)
    async def outer() -> list:
        if current().attempt == 1:
            raise OSError
        return [
            current().id,
            current().workflow,
            current().step,
            current().attempt,
            current().fence,
        ]

    id, name, key, attempt, fence = world.run(flow(outer)())
    assert (id, name, key, attempt) == ("run", "flow", "outer#1", 2)
    assert fence >= 1


def test_the_fence_grows_with_every_life(world):
    fences = []

    @step
    async def slow() -> None:
        fences.append(current().fence)
        await asyncio.sleep(100)

    for _ in range(3):
        world.die(flow(slow)(), after=10)
    world.run(flow(slow)())
    assert fences == sorted(set(fences))
    assert len(fences) == 4
