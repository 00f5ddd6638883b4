"""Test where and how a stream may be used."""

import asyncio
import contextvars
import threading

import pytest
from stream_model import WORD, check_one_answer
from stream_work import answer, model, screen, seen

from outlast import (
    Evicted,
    NotInRun,
    Outlast,
    OutlastError,
    SettingsError,
    current,
    progress,
    resume_stream,
    step,
    workflow,
)
from outlast.testing import App
from support.waiting import WAIT_SECONDS


def test_stream_is_refused_outside_a_step():
    with pytest.raises(NotInRun):
        resume_stream(model.restart)

    @workflow
    async def flow() -> None:
        resume_stream(model.restart)

    with pytest.raises(NotInRun):
        App().run(flow())


@pytest.mark.parametrize(
    "ask_for", [lambda: resume_stream(model.restart), progress], ids=["stream", "progress"]
)
def test_workflow_that_a_steps_body_has_started_is_no_steps_body(ask_for):
    @workflow
    async def child() -> None:
        ask_for()

    @step
    async def starts() -> str:
        async with Outlast("memory:", signals=0) as app:
            with pytest.raises(NotInRun):
                await (await app.start(child())).result()
        return "refused"

    @workflow
    async def flow() -> str:
        return await starts()

    async def main():
        async with Outlast("memory:", signals=0) as app:
            return await (await app.start(flow())).result()

    assert asyncio.run(main()) == "refused"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"by": "magic"}, "by="),
        ({"type": list}, "type"),
        ({"trim": str.rstrip}, "trim"),
        ({"stall": -1}, "stall"),
        ({"stall": "soon"}, "stall"),
    ],
)
def test_options_that_make_no_sense_are_refused(world, options, match):
    @step
    async def wrong() -> str:
        with pytest.raises(SettingsError, match=match):
            resume_stream(model.restart, **options)
        return "refused"

    @workflow
    async def flow() -> str:
        return await wrong()

    assert world.run(flow()) == "refused"


def test_stream_is_read_only_inside_its_block_and_opened_once(world):
    @step
    async def wrong() -> str:
        stream = resume_stream(model.restart)
        with pytest.raises(OutlastError, match="not open"):
            await anext(stream)
        async with stream:
            await anext(stream)
        with pytest.raises(OutlastError, match="closed"):
            await anext(stream)
        with pytest.raises(OutlastError, match="already been opened"):
            async with stream:
                pass
        assert stream.text == "q0-0."
        return repr(stream)

    @workflow
    async def flow() -> str:
        return await wrong()

    assert "restart" in world.run(flow())
    assert model.closed == 1


def test_step_within_a_step_has_its_own(world):
    @step
    async def part(topic: str) -> str:
        async with resume_stream(model.prefill, topic, by="prefill") as stream:
            seen.append((topic, len(WORD.findall(stream.resumed_from))))
            return await stream.read()

    @step
    async def whole() -> list[str]:
        return [await part("a"), await part("b")]

    @workflow
    async def flow() -> list[str]:
        return await whole()

    world.die(flow(), after=14.5)
    for text in world.run(flow()):
        check_one_answer(text, 10)
    assert seen == [("a", 0), ("b", 0), ("b", 4)]


def test_stream_works_in_a_thread_with_its_own_loop(address):
    model.pause = 0.001

    @step
    def threaded() -> str:
        return asyncio.run(answer.fn("prefill"))

    @workflow
    async def flow() -> str:
        return await threaded.aio()

    async def main():
        async with Outlast(address, signals=0, progress_interval=0.001) as app:
            return await (await app.start(flow())).result(timeout=WAIT_SECONDS)

    check_one_answer(asyncio.run(main()), 10)


def test_thread_that_the_first_attempt_left_behind_saves_nothing(world):
    """With its context, but without its step."""
    go, done, errors = threading.Event(), threading.Event(), []

    @step(retries=1, backoff=0.001)
    async def leaky() -> str:
        async with resume_stream(model.prefill, by="prefill") as stream:
            screen.begin(stream)
            await anext(stream)
            if current().attempt == 1:

                def late():
                    go.wait(WAIT_SECONDS)
                    try:
                        stream.discard()
                    except BaseException as error:
                        errors.append(type(error))
                    done.set()

                context = contextvars.copy_context()
                threading.Thread(target=context.run, args=(late,)).start()
                raise ValueError
            go.set()
            done.wait(WAIT_SECONDS)
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await leaky()

    check_one_answer(world.run(flow()), 10)
    assert errors == [Evicted]


def test_function_that_returns_a_stream_instead_of_being_one_is_told_how_to_become_one(world):
    async def returns() -> object:
        return model.restart()

    @step
    async def reads() -> str:
        async with resume_stream(returns) as stream:
            return await stream.read()

    @workflow
    async def one() -> str:
        return await reads()

    with pytest.raises(SettingsError, match=r"is a coroutine function.*: yield chunk"):
        world.run(one())
