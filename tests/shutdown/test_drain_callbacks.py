"""What a step can ask about a drain: draining, seconds_left, on_drain."""

import asyncio
import threading

import pytest
from checkpoint_tools import TOLD, drained, seen

from outlast import NotInRun, current, step, workflow
from outlast.testing import App
from support.waiting import WAIT_SECONDS


def test_a_step_can_ask_for_draining_and_seconds_left(world):
    @step
    async def asks() -> list:
        answers = [(current().draining, current().seconds_left)]
        while not current().draining:
            await asyncio.sleep(0.5)
        answers.append(current().seconds_left)
        await asyncio.sleep(10)
        answers.append(current().seconds_left)
        try:
            await asyncio.sleep(1000)
        finally:
            answers.append(current().seconds_left)
            await asyncio.sleep(1)
            answers.append(current().seconds_left)
            seen.extend(answers)

    @workflow
    async def flow() -> list:
        return await asks()

    drained(world, flow(), after=1.25)
    assert seen[0] == (False, None)
    assert seen[1] == pytest.approx(TOLD - 0.25, abs=0.05)
    assert seen[2] == pytest.approx(TOLD - 10.25, abs=0.05)
    assert seen[3] == pytest.approx(3, abs=0.15)
    assert seen[4] == pytest.approx(2, abs=0.15)


def test_a_step_that_returns_because_of_the_drain_is_done(world):
    @step
    async def polite() -> str:
        for _ in range(1000):
            if current().draining:
                return "what I have"
            await asyncio.sleep(1)
        return "all"

    @workflow
    async def flow() -> str:
        return await polite()

    report, seconds = drained(world, flow(), after=2.5)
    assert (world.status(), report.completed) == ("done", 1)
    assert seconds < 1.1


def test_each_callback_is_called_once_with_the_reason(world):
    @step
    async def listens() -> None:
        current().on_drain(lambda why: seen.append(("early", why)))
        while not current().draining:
            await asyncio.sleep(0.5)
        current().on_drain(lambda why: seen.append(("late", why)))
        await asyncio.sleep(1000)

    @workflow
    async def flow() -> None:
        await listens()

    drained(world, flow())
    assert seen == [("early", "test"), ("late", "test")]


def test_a_failed_callback_is_logged_and_the_others_are_called(world, caplog):
    def fails(why):
        raise RuntimeError("a callback's own trouble")

    @step
    async def listens() -> str:
        with pytest.raises(TypeError, match="takes a plain function"):
            current().on_drain(asyncio.sleep)
        current().on_drain(fails)
        current().on_drain(seen.append)
        await asyncio.sleep(5)
        return "end"

    @workflow
    async def flow() -> str:
        return await listens()

    report, _ = drained(world, flow())
    assert (seen, report.completed) == (["test"], 1)
    assert caplog.text.endswith("\nRuntimeError\n"), "what an error says is not logged"


def test_callbacks_of_a_past_attempt_are_not_called(world):
    @step(retries=1, backoff=0.001)
    async def listens() -> str:
        attempt = current().attempt
        current().on_drain(lambda why: seen.append(attempt))
        if attempt == 1:
            raise ValueError
        await asyncio.sleep(10)
        return "end"

    @workflow
    async def flow() -> str:
        return await listens()

    drained(world, flow())
    assert seen == [2]


def test_callbacks_of_an_ended_inner_step_are_not_called(world):
    @step
    async def part(name: str, seconds: float) -> None:
        current().on_drain(lambda why: seen.append(name))
        await asyncio.sleep(seconds)

    @step
    async def whole() -> None:
        current().on_drain(lambda why: seen.append("whole"))
        await part("ended", 0.1)
        await part("under way", 10)

    @workflow
    async def flow() -> None:
        await whole()

    drained(world, flow())
    assert seen == ["whole", "under way"]


def test_a_callback_can_be_set_in_a_thread(world):
    gate = threading.Event()

    @step
    def listens() -> str:
        current().on_drain(lambda why: (seen.append(why), gate.set()))
        gate.wait(WAIT_SECONDS)
        return "end"

    @workflow
    async def flow() -> str:
        return await listens.aio()

    async def main(app):
        await app.start(flow(), id="run")
        while not any(
            body.drain.listeners
            for execution in app._open.in_flight.executions.values()
            for body in execution.steps.tasks.values()
        ):
            await asyncio.sleep(0)
        return await app.drain("test", grace=1e6)

    report = world.do(main)
    assert (seen, report.completed) == (["test"], 1)


def test_workflow_code_has_no_callbacks():
    @workflow
    async def flow() -> None:
        current().on_drain(print)

    with pytest.raises(NotInRun):
        App().run(flow())
