"""Retrying a run that failed, was cancelled or timed out."""

import asyncio
import json

import pytest

from outlast import RunCancelled, RunTimeout, UnknownRun, WrongStatus, current, step, workflow

broken: set[str] = set()
done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    broken.clear()
    done.clear()


@step
async def work(label: str, seconds: float = 0.0) -> str:
    done.append(label)
    await asyncio.sleep(seconds)
    if label in broken:
        raise ValueError(label)
    return label


def cancelled_after(world, call, seconds, why="enough"):
    async def main(app):
        run = await app.start(call, id="run")
        await asyncio.sleep(seconds)
        status = await app.cancel("run", why)
        with pytest.raises(RunCancelled, match=why):
            await run.result(timeout=1e5)
        return status

    return world.do(main)


def test_a_retry_executes_only_what_failed_and_what_never_ended(world):
    broken.add("b")

    @workflow
    async def one() -> list[str]:
        first = await work("a")
        return [first, *await asyncio.gather(work("b", 5), work("quick", 1), work("c", 100))]

    with pytest.raises(ValueError, match="b"):
        world.run(one())
    broken.clear()
    done.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == ["a", "b", "quick", "c"]
    assert sorted(done) == ["b", "c"]
    assert world.replays(one()) == ["a", "b", "quick", "c"]


def test_results_of_siblings_that_ended_after_the_failure_are_not_computed_again(world):
    broken.add("b")

    @workflow
    async def one() -> list[str]:
        results = await asyncio.gather(work("b", 1), work("later", 5), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    with pytest.raises(ValueError, match="b"):
        world.run(one())
    broken.clear()
    done.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == ["b", "later"]
    assert done == ["b"]
    assert world.replays(one()) == ["b", "later"]


def test_retry_resets_the_attempt_count(world):
    attempts = []

    @step(retries=1, backoff=1.0)
    async def flaky() -> int:
        attempts.append(current().attempt)
        if len(attempts) < 4:
            raise OSError
        return current().attempt

    @workflow
    async def one() -> int:
        return await flaky()

    with pytest.raises(OSError):
        world.run(one())
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == 2
    assert attempts == [1, 2, 1, 2]


def test_a_cancelled_run_may_be_retried_and_goes_on_where_it_was_cancelled(world):
    @workflow
    async def one() -> list[str]:
        return [await work("a"), await work("b", 10)]

    cancelled_after(world, one(), 5)
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == ["a", "b"]
    assert done == ["a", "b", "b"]


def test_a_run_that_timed_out_has_its_whole_time_again_when_retried(world):
    @workflow(timeout=60)
    async def one() -> str:
        return await work("slow", 50 if len(done) else 1000)

    with pytest.raises(RunTimeout):
        world.run(one())
    world.clock.advance(1000)
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == "slow"


def test_timers_do_not_count_the_time_between_the_end_and_the_retry(world):
    broken.add("b")

    @workflow
    async def one() -> str:
        async with asyncio.timeout(100):
            await work("a", 50)
            return await work("b", 20)

    with pytest.raises(ValueError):
        world.run(one())
    world.clock.advance(10_000)
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == "b"


def test_a_failure_of_the_workflows_own_may_be_retried_after_a_fix(world):
    fixed = []

    @workflow
    async def one() -> str:
        label = await work("a")
        if not fixed:
            raise RuntimeError("a bug")
        return label

    with pytest.raises(RuntimeError):
        world.run(one())
    fixed.append(1)
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == "a"
    assert done == ["a"]


def test_only_what_ended_badly_can_be_retried_and_only_what_is_parked_resumed(world):
    @workflow
    async def one() -> str:
        return await work("x")

    world.run(one())

    async def main(app):
        for act in (app.retry, app.resume):
            with pytest.raises(WrongStatus, match="done"):
                await act("run")
            with pytest.raises(UnknownRun):
                await act("nobody")

    world.do(main)


def test_retrying_again_and_again_keeps_the_history(world):
    broken.add("b")

    @workflow
    async def one() -> list[str]:
        return [await work("a"), await work("b")]

    for _ in range(3):
        with pytest.raises(ValueError):
            world.run(one())
        world.do(lambda app: app.retry("run"))
    broken.clear()
    assert world.run(one()) == ["a", "b"]
    assert done == ["a", "b", "b", "b", "b"]
    assert world.kinds().count("retry") == 3
    assert json.loads(world.journal()[-1].value) == "b"
