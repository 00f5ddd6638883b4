"""Cancellation inside a workflow is recorded and replays the same way."""

import asyncio

import pytest

from outlast import sleep, step, workflow


@step
async def work(label: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return label


def test_a_step_cancelled_by_a_timeout_is_recorded_as_cancelled_and_not_executed_again(world):
    cancelled = []

    @step
    async def slow() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    @workflow
    async def one() -> str:
        try:
            async with asyncio.timeout(5):
                await slow()
        except TimeoutError:
            return await work("timed out")
        return "?"

    assert world.run(one()) == "timed out"
    assert cancelled == [1]
    assert world.kinds() == ["fired", "step", "step"]
    assert "CancelledError" in world.journal()[1].error
    assert world.replays(one()) == "timed out"


@pytest.mark.parametrize("second", [1, 4, 6, 9])
def test_a_timeout_survives_a_death_before_and_after_it_fires(world, second):
    @workflow
    async def one() -> list[str]:
        try:
            async with asyncio.timeout(5):
                await work("slow", 100)
        except TimeoutError:
            return [await work("timed out", 5)]
        return ["?"]

    world.die(one(), after=second)
    assert world.run(one()) == ["timed out"]
    assert world.clock.elapsed < 30


def test_timeout_due_between_processes_fires_before_any_step_starts(world):
    @workflow
    async def one() -> str:
        try:
            async with asyncio.timeout(5):
                return await work("slow", 100)
        except TimeoutError:
            return "timed out"

    world.die(one(), after=1, gap=1000)
    assert world.run(one()) == "timed out"
    assert world.executed == {}, "the step was cancelled before it could start in this life"


def test_a_step_that_ended_when_the_timeout_was_already_recorded_counts_as_cancelled(world):
    """The race: both come at the same moment. Whichever the journal has first, live and replay agree."""

    @workflow
    async def one() -> list[str]:
        results = []
        for n in range(10):
            try:
                async with asyncio.timeout(1):
                    results.append(await work(str(n), 1))
            except TimeoutError:
                results.append("timed out")
        return results

    result = world.run(one())
    assert world.replays(one()) == result


@pytest.mark.parametrize("seed", range(20))
def test_race_between_a_step_and_its_cancellation_replays_as_recorded(seed, world):
    @workflow
    async def one() -> list:
        task = asyncio.create_task(work("racer", 1))
        await work("before", 1)
        task.cancel()
        try:
            result = await task
        except asyncio.CancelledError:
            result = "cancelled"
        return [result, await work(f"after {result}")]

    world.app.seed = seed
    result = world.run(one())
    ended = {entry.args.split('"')[3]: entry.seq for entry in world.journal()}
    assert result[0] == ("cancelled" if ended["before"] < ended["racer"] else "racer"), (
        "the journal's order decides"
    )
    assert world.replays(one()) == result


def test_result_of_a_step_that_swallows_cancellation_is_recorded(world):
    @step
    async def stubborn() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return "I insist"
        return "?"

    @workflow
    async def one() -> str:
        task = asyncio.create_task(stubborn())
        await work("x", 1)
        task.cancel()
        return await task

    assert world.run(one()) == "I insist"
    assert world.replays(one()) == "I insist"


def test_failure_of_a_cancelled_step_is_recorded(world):
    @step
    async def clumsy() -> str:
        try:
            await asyncio.sleep(100)
        finally:
            raise ValueError("in finally")

    @workflow
    async def one() -> str:
        task = asyncio.create_task(clumsy())
        await work("x", 1)
        task.cancel()
        try:
            return await task
        except ValueError as error:
            return str(error)

    assert world.run(one()) == "in finally"
    assert world.replays(one()) == "in finally"


def test_a_cancelled_step_is_waited_for_before_the_workflow_goes_on(world):
    order = []

    @step
    async def slow_to_stop() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(5)
            order.append("stopped")

    @workflow
    async def one() -> None:
        try:
            async with asyncio.timeout(1):
                await slow_to_stop()
        except TimeoutError:
            order.append("timed out")

    world.run(one())
    assert order == ["stopped", "timed out"]


def test_shield_lets_the_step_go_on(world):
    @workflow
    async def one() -> list[str]:
        task = asyncio.create_task(work("shielded", 10))
        try:
            async with asyncio.timeout(1):
                await asyncio.shield(task)
        except TimeoutError:
            return [await work("meanwhile"), await task]
        return ["?"]

    assert world.run(one()) == ["meanwhile", "shielded"]
    world.die(one(), id="died", after=5)
    assert world.run(one(), id="died") == ["meanwhile", "shielded"]
    assert world.replays(one()) == ["meanwhile", "shielded"]


def test_a_failing_sibling_cancels_the_others_of_a_task_group(world):
    @step
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("no")

    @workflow
    async def one() -> list:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(str(n), 100)) for n in range(5)]
                group.create_task(fails())
        except* ValueError:
            await work("caught")
        return [task.cancelled() for task in tasks]

    assert world.run(one()) == [True] * 5
    assert world.replays(one()) == [True] * 5


def test_a_failure_in_gather_leaves_the_others_under_way(world):
    @step
    async def fails() -> None:
        raise ValueError("no")

    @workflow
    async def one() -> list:
        tasks = [asyncio.create_task(work(str(n), 5)) for n in range(2)]
        try:
            await asyncio.gather(fails(), *tasks)
        except ValueError as error:
            return [str(error), *await asyncio.gather(*tasks)]
        return []

    assert world.run(one()) == ["no", "0", "1"]
    assert world.replays(one()) == ["no", "0", "1"]


def test_steps_in_a_finally_are_executed_once(world):
    @workflow
    async def one() -> str:
        try:
            async with asyncio.timeout(1):
                try:
                    await sleep(100)
                finally:
                    await work("cleaning", 5)
        except TimeoutError:
            return await work("done")
        return "?"

    world.die(one(), after=3)
    assert world.run(one()) == "done"
    assert [entry.key for entry in world.journal() if entry.kind == "step"] == ["work#1", "work#2"]


def test_a_sleep_that_is_cancelled_ends_at_once_and_its_timer_never_fires(world):
    @workflow
    async def one() -> str:
        sleeper = asyncio.create_task(sleep(1000))
        await work("x", 1)
        sleeper.cancel()
        return await work("y", 1)

    assert world.run(one()) == "y"
    assert world.kinds() == ["step", "step"]
    assert world.clock.elapsed < 10


def test_step_that_raises_cancelled_error_fails_and_cancels_nothing(world):
    @step
    async def odd() -> None:
        raise asyncio.CancelledError("of my own")

    @workflow
    async def one() -> str:
        try:
            await odd()
        except Exception as error:
            return type(error).__name__
        return "?"

    assert world.run(one()) == "StepFailed"
    assert world.replays(one()) == "StepFailed"


def test_an_unawaited_step_is_not_executed(world):
    @workflow
    async def one() -> str:
        never = work("never")
        never.close()
        return await work("once")

    assert world.run(one()) == "once"
    assert world.executed == {"work": 1}
    assert world.keys() == ["work#2"]
