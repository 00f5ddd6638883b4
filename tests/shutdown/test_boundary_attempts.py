"""Retries, cancellation, time-outs, children and replay while a worker drains."""

import asyncio

import pytest
from drain_tools import act, begun, drained, ended, one

from outlast import Draining, current, step, workflow


def test_an_inner_step_between_attempts_is_left_to_the_next_life(world):
    @step(retries=5, backoff=100, backoff_max=100)
    async def flaky() -> str:
        begun.append("try")
        if len(begun) == 1:
            raise ValueError
        return "ok"

    @step
    async def outer() -> str:
        return await flaky()

    @workflow
    async def flow() -> str:
        return await outer()

    report, seconds = drained(world, flow())
    assert (begun, report.released, report.left) == (["try"], 1, [])
    assert seconds < 1
    world.restart()
    assert world.run(flow()) == "ok"


def test_a_step_between_attempts_is_released_and_keeps_its_pause(world):
    @step(retries=5, backoff=10, backoff_max=10)
    async def flaky() -> str:
        begun.append(current().attempt)
        if len(begun) < 2:
            raise ValueError
        return "ok"

    @workflow
    async def flow() -> str:
        return await flaky()

    report, seconds = drained(world, flow())
    assert (begun, report.left) == ([1], [])
    assert seconds < 1, "it is released at once"
    assert world.row().worker is None
    world.restart(after=0.01)
    start = world.clock()
    assert world.run(flow()) == "ok"
    assert begun == [1, 2]
    assert world.clock() - start > 3, "and the pause is kept"


def test_an_attempt_that_fails_is_recorded_and_not_repeated_in_the_drain(world):
    @step(retries=3, backoff=1)
    async def flaky() -> str:
        begun.append(current().attempt)
        await asyncio.sleep(5)
        if len(begun) < 2:
            raise ValueError
        return "ok"

    @workflow
    async def flow() -> str:
        return await flaky()

    _report, _ = drained(world, flow())
    assert begun == [1]
    assert world.kinds() == ["attempt", "interruption"]
    world.restart()
    assert world.run(flow()) == "ok"
    assert begun == [1, 2]


def test_a_child_is_not_started(world):
    @workflow
    async def parent() -> str:
        await act("before", 5)
        return await one("child")

    report, _ = drained(world, parent())
    assert begun == ["before"]
    assert report.released == 1
    assert world.store.run("run/one#1") is None
    world.restart()
    assert world.run(parent()) == "child"


def test_a_run_cancelled_in_the_drain_is_cancelled(world):
    @workflow
    async def flow() -> str:
        try:
            return await act("a", 1000)
        finally:
            ended.append("cleaned")

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(1)
        await app.cancel("run", "enough")
        return await drain

    report = world.do(main)
    assert (world.status(), ended, report.completed) == ("cancelled", ["cleaned"], 1)


def test_a_run_cancelled_before_the_drain_is_cancelled(world):
    @step
    async def careful() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)
            ended.append("careful")

    @workflow
    async def flow() -> None:
        await careful()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        await app.cancel("run", "enough")
        await asyncio.sleep(1)
        return await app.drain("test")

    report = world.do(main)
    assert (world.status(), ended, report.completed) == ("cancelled", ["careful"], 1)


def test_a_run_that_times_out_in_the_drain_has_failed(world):
    @workflow(timeout=5)
    async def flow() -> str:
        return await act("a", 20)

    report, _ = drained(world, flow())
    assert (world.status(), report.completed) == ("failed", 1)


def test_a_timeout_in_the_workflow_holds_in_the_drain(world):
    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(5):
                return await act("a", 20)
        except TimeoutError:
            return "too slow"

    report, seconds = drained(world, flow())
    assert (world.status(), report.completed) == ("done", 1)
    assert seconds == pytest.approx(4, abs=0.1)


def test_a_replaying_run_starts_nothing(world):
    @workflow
    async def long() -> int:
        for number in range(450):
            await act(str(number))
        await act("live", 5)
        return 1

    world.die(long(), until=lambda: "live" in begun)
    begun.clear()

    async def main(app):
        await app.start(long(), id="run")
        while "run" not in app._open.in_flight.executions:
            await asyncio.sleep(0)
        assert app._open.in_flight.executions["run"].is_replaying
        return await app.drain("test")

    report = world.do(main)
    assert (begun, report.released, report.left) == ([], 1, [])
    world.restart()
    assert world.run(long()) == 1
    assert begun == ["live"]


def test_a_run_that_catches_up_in_the_drain_starts_no_gathered_step(world):
    @workflow
    async def flow() -> list[str]:
        await act("first")
        return list(await asyncio.gather(*[act(label, 5) for label in "abc"]))

    world.die(flow(), until=lambda: len(begun) == 4)
    begun.clear()

    async def main(app):
        await app.start(flow(), id="run")
        while "run" not in app._open.in_flight.executions:
            await asyncio.sleep(0)
        return await app.drain("test")

    world.do(main)
    assert begun == []
    world.restart()
    assert world.run(flow()) == ["a", "b", "c"]


def test_a_step_that_raises_draining_is_repeated_in_the_next_life(world):
    async def main(app):
        @step
        async def starter() -> str:
            begun.append("starter")
            await asyncio.sleep(5)
            await app.queue("q").put(1, id="one")
            return "put"

        @workflow
        async def flow() -> str:
            return await starter()

        run = await app.start(flow(), id="run")
        if len(begun) > 0 or app.store.run("q/one"):
            return await run.result()
        await asyncio.sleep(1)
        return await app.drain("test")

    report = world.do(main)
    assert (report.released, report.left, world.status()) == (1, [], "queued")
    assert world.kinds() == ["interruption"], "no failure is on record"


def test_a_step_that_raises_draining_has_used_no_attempt(world):
    attempts = []

    async def main(app):
        @step(retries=1, backoff=0.1)
        async def starter() -> str:
            attempts.append(current().attempt)
            await asyncio.sleep(5)
            await app.queue("q").put(1, id="one")
            return "put"

        @workflow
        async def flow() -> str:
            return await starter()

        run = await app.start(flow(), id="run")
        if len(attempts) == 0:
            await asyncio.sleep(1)
            return await app.drain("test")
        return await run.result()

    world.do(main)
    assert "attempt" not in world.kinds()
    world.restart()
    assert world.do(main) == "put"
    assert attempts == [1, 1]


def test_draining_raised_without_a_drain_is_a_failure(world):
    @step
    async def odd() -> None:
        raise Draining("mine")

    @workflow
    async def flow() -> None:
        await odd()

    with pytest.raises(Draining, match="mine"):
        world.run(flow())
    assert world.status() == "failed"
