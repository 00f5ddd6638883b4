"""How a run ends when not with a result, and how it is taken up again: cancel, time-out, retry."""

import asyncio
import json

import pytest

from outlast import RunCancelled, RunTimeout, UnknownRun, WrongStatus, current, receive, sleep, step, workflow

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


# -- cancelling


def test_a_queued_run_is_cancelled_at_once(world):
    @workflow
    async def one() -> str:
        return await work("x")

    async def main(app):
        await app.submit(one(), id="run")
        assert await app.cancel("run", "not wanted") == "cancelled"
        with pytest.raises(RunCancelled, match="not wanted"):
            await (await app.start(one(), id="run")).result(timeout=100)

    world.do(main)
    assert done == []
    assert world.kinds() == []


def test_a_running_run_is_cancelled_and_its_step_too(world):
    stopped = []

    @step
    async def slow() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            stopped.append(world.clock.elapsed)
            raise

    @workflow
    async def one() -> None:
        await slow()

    assert cancelled_after(world, one(), 5) == "running"
    assert stopped == [pytest.approx(5, abs=1)]
    assert world.status() == "cancelled"
    assert world.kinds() == ["cancel", "step"]


@pytest.mark.parametrize("wait", [lambda: sleep(1000), lambda: receive("x")], ids=["sleep", "receive"])
def test_a_waiting_run_is_cancelled(world, wait):
    @workflow
    async def one() -> None:
        await wait()

    cancelled_after(world, one(), 5)
    assert world.status() == "cancelled"
    assert world.clock.elapsed < 100


def test_its_finally_blocks_execute_but_no_new_step_starts(world):
    seen = []

    @workflow
    async def one() -> None:
        try:
            await sleep(1000)
        finally:
            seen.append("finally")
            await work("never")

    cancelled_after(world, one(), 5)
    assert seen == ["finally"]
    assert done == []


def test_a_workflow_that_swallows_its_cancellation_is_cancelled_all_the_same(world):
    seen = []

    @workflow
    async def one() -> str:
        for _ in range(5):
            try:
                await work("again", 100)
            except asyncio.CancelledError as error:
                seen.append(str(error))
        return "I insist"

    cancelled_after(world, one(), 5)
    assert done == ["again"]
    assert len(seen) == 5
    assert world.status() == "cancelled"


def test_the_workflow_is_told_why(world):
    seen = []

    @workflow
    async def one() -> None:
        try:
            await sleep(1000)
        except asyncio.CancelledError as error:
            seen.append(str(error))
            raise

    cancelled_after(world, one(), 5, "the budget is spent")
    assert seen == ["the budget is spent"]


def test_a_cancel_that_nobody_could_hear_is_heard_by_the_next_life_before_it_starts_anything(world):
    @workflow
    async def one() -> str:
        return await work("slow", 100)

    world.die(one(), after=10)
    world.do(lambda app: app.cancel("run", "while dead"))
    done.clear()
    with pytest.raises(RunCancelled, match="while dead"):
        world.run(one())
    assert done == []


def test_only_a_run_that_is_there_and_not_ended_can_be_cancelled(world):
    @workflow
    async def one() -> str:
        return await work("x")

    world.run(one())

    async def main(app):
        with pytest.raises(WrongStatus, match="done"):
            await app.cancel("run")
        with pytest.raises(UnknownRun):
            await app.cancel("nobody")

    world.do(main)


def test_a_second_cancel_is_harmless_and_the_first_reason_stays(world):
    @workflow
    async def one() -> None:
        try:
            await sleep(1000)
        finally:
            await asyncio.sleep(0)

    async def main(app):
        run = await app.start(one(), id="run")
        await asyncio.sleep(1)
        await asyncio.gather(app.cancel("run", "first"), app.cancel("run", "second"), return_exceptions=True)
        with pytest.raises(RunCancelled, match="first"):
            await run.result(timeout=100)

    world.do(main)
    assert world.kinds() == ["cancel"]


def test_a_workflow_that_raises_cancelled_error_by_itself_failed_and_was_not_cancelled(world):
    @workflow
    async def one() -> None:
        raise asyncio.CancelledError("of my own")

    with pytest.raises(Exception, match="nobody had cancelled"):
        world.run(one())
    assert world.status() == "failed"


# -- the time-out of a run


def test_a_run_that_takes_too_long_is_a_run_timeout(world):
    @workflow(timeout=60)
    async def one() -> None:
        await work("slow", 1000)

    with pytest.raises(RunTimeout) as caught:
        world.run(one())
    assert isinstance(caught.value, TimeoutError)
    assert world.status() == "failed"
    assert world.clock.elapsed == pytest.approx(60, abs=1)


def test_the_time_of_a_run_counts_from_its_first_start_over_all_lives(world):
    @workflow(timeout=60)
    async def one() -> None:
        await work("slow", 1000)

    world.die(one(), after=40)
    world.die(one(), after=10)
    with pytest.raises(RunTimeout):
        world.run(one())
    assert world.clock.elapsed == pytest.approx(60, abs=2)


def test_a_run_whose_time_ran_out_while_nobody_lived_starts_nothing(world):
    @workflow(timeout=60)
    async def one() -> None:
        await work("slow", 1000)

    world.die(one(), after=10, gap=500)
    done.clear()
    with pytest.raises(RunTimeout):
        world.run(one())
    assert done == []


# -- retrying


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


def test_a_retry_begins_the_attempts_anew(world):
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
