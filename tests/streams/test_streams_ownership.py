"""A stream belongs to one attempt and one question; drains and cancellations close it."""

import asyncio
import gc
import logging
import warnings
from functools import partial

import pytest
from stream_model import WORD, Model, check_one_answer
from stream_work import GOING_ON, WAYS, answer, ask, model, opener, screen, seen

from outlast import (
    Evicted,
    OutlastError,
    Unrecordable,
    current,
    progress,
    resume_stream,
    step,
    workflow,
)


def test_attempt_that_is_over_saves_nothing_into_the_next(world):
    late, errors = asyncio.Event(), []

    @step(retries=1, backoff=0.001)
    async def leaky() -> str:
        if current().attempt == 1:
            stream = resume_stream(model.prefill, by="prefill")
            await stream.__aenter__()
            await anext(stream)
            first = stream

            async def go_on():
                await late.wait()
                try:
                    await anext(first)
                except BaseException as error:
                    errors.append(type(error))
                await first.__aexit__(None, None, None)

            seen.append(asyncio.create_task(go_on()))
            raise ValueError
        async with resume_stream(model.prefill, by="prefill") as stream:
            screen.begin(stream)
            await anext(stream)
            late.set()
            await asyncio.sleep(5)
            await stream.read()
            return stream.text

    @workflow
    async def flow() -> str:
        return await leaky()

    check_one_answer(world.run(flow()), 10)
    assert errors == [Evicted]
    assert screen.begun == [("q0-0.", False, False)]


def test_streams_of_one_step_are_told_apart_by_their_arguments_in_any_order(world):
    model.pause = 2.0

    @step
    async def several() -> dict[str, str]:
        async def one(topic: str) -> str:
            async with resume_stream(model.prefill, topic, by="prefill") as stream:
                seen.append((topic, len(WORD.findall(stream.resumed_from))))
                return await stream.read()

        topics = ["a", "b", "c"] if len(seen) < 3 else ["c", "a", "b"]
        texts = await asyncio.gather(*[one(topic) for topic in topics])
        return dict(zip(topics, texts, strict=True))

    @workflow
    async def flow() -> dict[str, str]:
        return await several()

    world.die(flow(), after=7)
    answers = world.run(flow())
    for topic, text in answers.items():
        check_one_answer(text, 10)
        assert text.startswith(topic)
    assert sorted(seen[3:]) == [("a", 3), ("b", 3), ("c", 3)]


def test_same_question_asked_twice_is_two_answers(world):
    @step
    async def several() -> list[str]:
        async def one() -> str:
            async with resume_stream(model.prefill, "a", by="prefill") as stream:
                return await stream.read()

        return [*await asyncio.gather(one(), one()), await one()]

    @workflow
    async def flow() -> list[str]:
        return await several()

    world.die(flow(), after=4.5)
    world.die(flow(), after=9.5)
    texts = world.run(flow())
    for text in texts:
        check_one_answer(text, 10)
    assert len(set(texts)) == 3


def test_half_an_answer_to_another_question_is_not_gone_on_from(world):
    """As when a deploy has changed the prompt in between."""
    prompt = "old"

    @step
    async def changed() -> str:
        async with resume_stream(model.prefill, prompt, by="prefill") as stream:
            screen.begin(stream)
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await changed()

    world.die(flow(), after=4.5)
    prompt = "new"
    assert world.run(flow()).startswith("new1-0.")
    assert screen.begun == [("", False, False)] * 2


def test_step_does_not_continue_what_another_model_said(world):
    other = Model()
    other.voices = iter(["other"])

    async def first(so_far: str, prompt: str):
        async for word in model.prefill(so_far, prompt):
            yield word

    async def second(so_far: str, prompt: str):
        async for word in other.prefill(so_far, prompt):
            yield word

    @step
    async def both() -> list[str]:
        async def one(open) -> str:
            async with resume_stream(open, "q", by="prefill") as stream:
                return await stream.read()

        openers = [first, second] if not other.asked else [second, first]
        return await asyncio.gather(*[one(open) for open in openers])

    @workflow
    async def flow() -> list[str]:
        return await both()

    world.die(flow(), after=4.5)
    others, mine = world.run(flow())
    check_one_answer(mine, 10)
    check_one_answer(others, 10)
    assert (mine[:3], others[:7]) == ("q0-", "qother-")
    assert [len(one) for one in (model.asked, other.asked)] == [2, 2]


def test_stream_and_the_steps_own_progress_do_not_meet(world):
    @step
    async def both() -> str:
        async with progress(int) as p, resume_stream(model.prefill, by="prefill") as stream:
            seen.append((p.value, len(WORD.findall(stream.resumed_from))))
            async for _ in stream:
                p.save((p.value or 0) + 1)
            return stream.text

    @workflow
    async def flow() -> str:
        return await both()

    world.die(flow(), after=4.5)
    check_one_answer(world.run(flow()), 10)
    assert seen == [(None, 0), (4, 4)]


def test_client_is_bound_and_not_part_of_what_is_asked(world):
    async def source(client, so_far: str, prompt: str):
        async for word in client.prefill(so_far, prompt):
            yield word

    @step
    async def bound() -> str:
        async with resume_stream(partial(source, model), "a", by="prefill") as stream:
            screen.begin(stream)
            return await stream.read()

    @step
    async def unbound() -> str:
        async with resume_stream(model.restart, object()) as stream:
            return await stream.read()

    @workflow
    async def flow(kind: str) -> str:
        return await (bound() if kind == "bound" else unbound())

    world.die(flow("bound"), after=4.5)
    check_one_answer(world.run(flow("bound")), 10)
    assert len(WORD.findall(screen.begun[1][0])) == 4
    with pytest.raises(Unrecordable, match="partial or a lambda"):
        world.run(flow("unbound"), id="other")


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("where", ["waiting for the model", "with the consumer"])
def test_drain_closes_the_source_at_once_and_the_next_life_goes_on_from_the_last_chunk(
    world, by, where
):
    @step
    async def busy() -> str:
        async with resume_stream(opener(by), by=by) as stream:
            screen.begin(stream)
            async for chunk in stream:
                screen.append(chunk)
                if where == "with the consumer":
                    await asyncio.sleep(10)
            return stream.text

    @workflow
    async def flow() -> str:
        return await busy()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(3.5)
        began = app.clock()
        report = await app.drain("test", grace=4)
        assert app.clock() - began < 2
        return report

    model.words = 30
    world.settings = {"progress_interval": 1e6}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = world.do(main)
        gc.collect()
    assert (report.checkpointed, report.left, model.closed) == (1, [], 1)
    shown = len(WORD.findall(screen.shown[-1]))
    world.restart()
    check_one_answer(world.run(flow()), 30)
    screen.check(30)
    assert len(WORD.findall(screen.begun[1][0])) == (shown if by in GOING_ON else 0)
    assert model.closed == 2


def test_stream_that_would_lose_everything_does_not_count_as_one_that_can_be_stopped(world):
    """A drain stops a step with progress at once if it will hardly end in time. One that must start again may try."""

    async def main(app):
        for _ in range(5):
            app._open.services.steps.durations.add("ask", "answer", 1000.0)
        for by in WAYS:
            await app.start(ask(by), id=by)
        await asyncio.sleep(3.5)
        bodies = {
            by: next(iter(app._open.in_flight.executions[by].steps.tasks.values())) for by in WAYS
        }
        return {by: body.can_save for by, body in bodies.items()}

    assert world.do(main) == {"restart": False, "prefill": True, "cursor": True}


def test_run_that_is_cancelled_closes_its_stream(world):
    async def main(app):
        run = await app.start(ask("prefill"), id="run")
        await asyncio.sleep(3.5)
        await app.cancel("run", "enough")
        with pytest.raises(OutlastError):
            await run.result()

    world.do(main)
    assert model.closed == 1


def test_step_that_takes_too_long_leaves_its_text_to_the_next_attempt(world):
    @step(retries=3, backoff=0.001, timeout=4.5)
    async def limited() -> str:
        return await answer.fn("prefill")

    @workflow
    async def flow() -> str:
        return await limited()

    check_one_answer(world.run(flow()), 10)
    screen.check(10)
    assert [len(WORD.findall(begun[0])) for begun in screen.begun] == [0, 4, 8]
    assert model.closed == 3


def test_source_that_fails_to_close_does_not_hide_why_it_was_left(world, caplog):
    async def sticky():
        try:
            yield "one"
            yield "two"
        finally:
            raise OSError("cannot close")

    @step
    async def left() -> str:
        async with resume_stream(sticky) as stream:
            await anext(stream)
            raise ValueError("why")

    @step
    async def enough() -> str:
        async with resume_stream(sticky) as stream:
            return await anext(stream)

    @workflow
    async def flow(kind: str) -> str:
        return await (left() if kind == "left" else enough())

    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match="why"):
        world.run(flow("left"))
    assert "Failed to close the stream" in caplog.text
    with pytest.raises(OSError, match="cannot close"):
        world.run(flow("enough"), id="other")


def test_iterator_that_is_no_generator_is_fine(world):
    class Source:
        def __init__(self) -> None:
            self.left = ["one", "two"]

        def __aiter__(self):
            return self

        async def __anext__(self) -> str:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    @step
    async def read() -> str:
        async with resume_stream(Source) as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await read()

    assert world.run(flow()) == "onetwo"
