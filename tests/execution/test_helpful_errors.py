"""Errors that new users meet say what happened and what to do."""

import logging
import traceback

import pytest

from outlast import Conflict, RunCancelled, RunParked, Unrecordable, receive, run, step, workflow
from outlast.testing import App


@step
async def work(x: int) -> int:
    return x + 1


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (bool, "maybe"),
        (int, "1"),
        (int, 1.5),
        (str, 1),
        (list[int], ["a"]),
        (dict[str, int], {"a": None}),
        (int | None, "x"),
    ],
)
def test_step_result_that_does_not_fit_its_annotation_is_explained(world, annotation, value):
    async def says() -> None:
        return value

    says.__annotations__["return"] = annotation
    lying = step(says)

    @workflow
    async def flow() -> None:
        await lying()

    with pytest.raises(Unrecordable, match="step says"):
        world.run(flow())


@pytest.mark.parametrize(
    ("annotation", "value"), [(float, 1), (int, True), (int | None, None), (list[str], [])]
)
def test_what_a_type_checker_lets_pass_is_recorded(world, annotation, value):
    async def says() -> None:
        return value

    says.__annotations__["return"] = annotation
    honest = step(says)

    @workflow
    async def flow() -> None:
        assert await honest() == value

    world.run(flow())


def test_a_message_that_does_not_fit_ends_the_run_and_a_retry_leaves_it_out(world):
    @workflow
    async def approval() -> bool:
        return await receive("answer", bool)

    async def first(app):
        run = await app.start(approval(), id="run")
        await app.send("run", "answer", "maybe")
        with pytest.raises(Unrecordable, match="message 'answer'"):
            await run.result()
        await app.retry("run")
        await app.send("run", "answer", True)
        return await (await app.start(approval(), id="run")).result()

    assert world.do(first) is True


def test_a_recorded_failure_says_that_it_is_one_and_what_to_do(world):
    @step
    async def breaks() -> None:
        raise ValueError("bug")

    @workflow
    async def flow() -> None:
        await breaks()

    for _ in range(2):
        with pytest.raises(ValueError, match="bug") as caught:
            world.run(flow())
        assert any("outlast retry run" in note for note in caught.value.__notes__)


def test_error_of_a_cancelled_run_says_how_to_retry_it(world):
    @workflow
    async def flow() -> None:
        await receive("never")

    async def main(app):
        run = await app.start(flow(), id="run")
        await app.cancel("run", "enough")
        await run.result()

    with pytest.raises(RunCancelled, match="run 'run' was cancelled: enough") as caught:
        world.do(main)
    assert caught.value.__notes__ == [
        "outlast explain RunCancelled",
        "To execute it all the same: outlast retry run, then the same call again.",
    ]


def test_conflict_raises_without_logging(world, caplog):
    @workflow
    async def flow(x: int) -> int:
        return await work(x)

    world.run(flow(1))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(Conflict, match="use another id for other work"),
    ):
        world.run(flow(2))
    assert caplog.records == []


def test_a_divergence_names_what_the_code_asked_for(world):
    @step
    async def other(x: int) -> int:
        return x

    def flow(first):
        @workflow(name="flow")
        async def flow() -> int:
            await first(1)
            return await receive("never", int)

        return flow

    world.die(flow(work)(), after=1.0)
    with pytest.raises(RunParked, match=r"recorded step work#1.*asked for step .*other#1"):
        world.run(flow(other)())


def test_error_suggests_a_forgotten_await(world):
    @workflow
    async def flow():
        return work(1)

    with pytest.raises(Unrecordable, match="Add the missing `await`"):
        world.run(flow())


def test_app_run_fails_when_a_run_waits_for_a_message_nobody_sends(monkeypatch):
    monkeypatch.setattr("outlast.testing.clock.REAL_PATIENCE", 0.1)

    @workflow
    async def waits() -> int:
        return await receive("never", int)

    with pytest.raises(TimeoutError, match="no one sends"):
        App().run(waits())


def test_only_a_step_can_be_stubbed(outlast_app):
    with pytest.raises(TypeError, match="takes a step"):
        outlast_app.stub("work", returns=1)


def test_traceback_of_a_failed_run_shows_only_user_code_and_the_end():
    @workflow
    async def flow() -> None:
        raise ValueError("bug")

    with pytest.raises(ValueError, match="bug") as caught:
        run(flow(), store="memory:")
    assert [frame.name for frame in traceback.extract_tb(caught.tb)][1:] == ["run", "conclude"]
