"""Silent or broken streams fail, and half an answer is never taken for a whole one."""

import asyncio

import pytest
from stream_model import WORD, check_one_answer
from stream_work import GOING_ON, WAYS, model, opener, screen

from outlast import (
    OutlastError,
    StreamStalled,
    current,
    resume_stream,
    step,
    workflow,
)


@pytest.mark.parametrize("by", WAYS)
def test_silent_server_is_an_error_and_the_next_attempt_goes_on(world, by):
    pauses = iter([0.5, 0.5, 0.5, 1000.0, *[0.5] * 100])

    async def moody(*so_far):
        source = opener(by)(*so_far)
        try:
            async for item in source:
                await asyncio.sleep(next(pauses))
                yield item
        finally:
            await source.aclose()

    errors = []

    @step(retries=1, backoff=0.001)
    async def patient() -> str:
        async with resume_stream(moody, by=by, stall=5) as stream:
            screen.begin(stream)
            try:
                async for chunk in stream:
                    screen.append(chunk)
            except StreamStalled as error:
                errors.append(error)
                raise
            return stream.text

    @workflow
    async def flow() -> str:
        return await patient()

    check_one_answer(world.run(flow()), 10)
    screen.check(10)
    assert len(WORD.findall(screen.begun[1][0])) == (3 if by in GOING_ON else 0)
    (error,) = errors
    assert isinstance(error, TimeoutError)
    assert "moody" in str(error)
    assert "yielded nothing for 5 s" in str(error)
    assert model.closed == 2, "the silent one too"


def test_consumers_own_time_is_not_silence(world):
    @step
    async def slow() -> str:
        async with resume_stream(model.restart, stall=2) as stream:
            async for _ in stream:
                await asyncio.sleep(100)
            return stream.text

    @workflow
    async def flow() -> str:
        return await slow()

    check_one_answer(world.run(flow()), 10)


@pytest.mark.parametrize("by", GOING_ON)
def test_silence_where_it_should_go_on_is_an_error_too(world, by):
    async def source(so_far):
        if so_far:
            await asyncio.sleep(1000)
        async for item in opener(by)(so_far):
            yield item

    @step
    async def patient() -> str:
        async with resume_stream(source, by=by, stall=5) as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await patient()

    world.die(flow(), after=4.5)
    with pytest.raises(StreamStalled):
        world.run(flow())


def test_time_out_of_the_source_itself_is_its_own(world):
    async def source():
        raise TimeoutError("mine")
        yield ""

    @step
    async def patient() -> str:
        async with resume_stream(source, stall=5) as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await patient()

    with pytest.raises(TimeoutError, match="mine") as raised:
        world.run(flow())
    assert not isinstance(raised.value, StreamStalled)


@pytest.mark.parametrize("by", GOING_ON)
@pytest.mark.parametrize("stall", [None, 3])
def test_stream_that_failed_does_not_pass_for_one_that_ended(world, by, stall):
    """A generator that has raised says, when it is asked again, that it is at its end."""
    model.breaks_at = [3]

    @step(retries=1, backoff=0.001)
    async def stubborn() -> str:
        async with resume_stream(opener(by), by=by, stall=stall) as stream:
            screen.begin(stream)
            try:
                await stream.read()
            except ConnectionError:
                await stream.read()
            return stream.text

    @workflow
    async def flow() -> str:
        return await stubborn()

    check_one_answer(world.run(flow()), 10)
    assert [begun[2] for begun in screen.begun] == [False, False]
    assert len(model.asked) == 2


@pytest.mark.parametrize("by", GOING_ON)
def test_nor_does_one_that_the_consumer_timed_out(world, by):
    @step(retries=1, backoff=0.001)
    async def hasty() -> str:
        async with resume_stream(opener(by), by=by) as stream:
            screen.begin(stream)
            if current().attempt == 1:
                try:
                    async with asyncio.timeout(3.5):
                        await stream.read()
                except TimeoutError:
                    with pytest.raises(OutlastError, match="has failed"):
                        await stream.read()
                    raise
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await hasty()

    check_one_answer(world.run(flow()), 10)
    assert len(WORD.findall(screen.begun[1][0])) == 3


@pytest.mark.parametrize("stall", [None, 100])
def test_nor_does_one_that_swallows_its_cancellation(world, stall):
    """A drain cancels the step, and the source ends as if the answer had."""

    async def swallows(so_far: str):
        try:
            async for word in model.prefill(so_far):
                yield word
        except asyncio.CancelledError:
            return

    @step
    async def cut() -> str:
        async with resume_stream(swallows, by="prefill", stall=stall) as stream:
            screen.begin(stream)
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await cut()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(3.5)
        await app.drain("test", grace=4)

    model.words = 30
    world.do(main)
    world.restart()
    check_one_answer(world.run(flow()), 30)
    assert [begun[2] for begun in screen.begun] == [False, False]


def test_source_that_swallows_the_stall_is_stalled_all_the_same(world):
    async def swallows():
        try:
            yield "half"
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return

    @step
    async def patient() -> str:
        async with resume_stream(swallows, stall=5) as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await patient()

    with pytest.raises(StreamStalled):
        world.run(flow())
