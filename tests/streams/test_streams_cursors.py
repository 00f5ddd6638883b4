"""Streams continue from a cursor, and start clean where the provider refuses."""

import asyncio

import pytest
from stream_model import WORD, check_one_answer
from stream_work import GOING_ON, ask, model, opener, screen, seen

from outlast import (
    CannotResume,
    Unrecordable,
    current,
    resume_stream,
    step,
    workflow,
)


def test_text_and_cursor_are_always_of_one_moment(world):
    """Wherever it dies: the text is what had come up to the cursor."""
    for after in range(1, 12):
        world.settings = {"progress_interval": 0.3}
        id = f"run-{after}"
        world.die(ask("cursor"), id=id, after=after * 0.77)
        world.run(ask("cursor"), id=id)
        begun, asked = screen.begun[-1][0], model.asked[-1]
        words = WORD.findall(begun)
        assert asked == (f"{words[-1][0]}:{words[-1][1]}" if words else None)
        check_one_answer(screen.shown[-1], 10)


@pytest.mark.parametrize("cursor", [0, "", "id", 17, 1.5, True, ["a", 1], {"id": "a", "seq": 3}])
def test_cursor_is_any_plain_json_and_comes_back_as_it_was(world, cursor):
    async def source(after):
        seen.append(after)
        yield "half", cursor
        if after is None:
            await asyncio.sleep(1000)

    @step
    async def follow() -> str:
        async with resume_stream(source, by="cursor") as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await follow()

    world.die(flow(), after=5)
    assert world.run(flow()) == "halfhalf"
    assert seen == [None, cursor]
    assert type(seen[1]) is type(cursor)


def test_cursor_that_cannot_be_recorded_is_a_clear_error(world):
    async def source(after):
        yield "text", object()

    @step(retries=3)
    async def follow() -> str:
        async with resume_stream(source, by="cursor") as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await follow()

    with pytest.raises(Unrecordable):
        world.run(flow())


def test_what_came_without_a_cursor_is_received_again_and_not_twice(world):
    """As of server-sent events of which only some have an id."""

    async def source(after):
        seen.append(after)
        for number in range(after or 0, 10):
            await asyncio.sleep(1)
            yield f"q-{number}.", number + 1 if number % 3 == 2 else None

    @step
    async def follow() -> str:
        async with resume_stream(source, by="cursor") as stream:
            screen.begin(stream)
            async for chunk in stream:
                screen.append(chunk)
            return stream.text

    @workflow
    async def flow() -> str:
        return await follow()

    world.die(flow(), after=2.5)
    world.die(flow(), after=5.5)
    check_one_answer(world.run(flow()), 10)
    screen.check(10)
    assert seen == [None, None, 3]
    assert screen.begun == [("", False, False), ("", True, False), ("q-0.q-1.q-2.", False, False)]


def test_what_arrives_between_a_save_and_its_write_is_not_written_with_it(world):
    """The write comes later than the cursor, and two chunks without one have arrived meanwhile."""

    async def source(after):
        for number in range(after or 0, 10):
            await asyncio.sleep(0.1)
            yield f"q-{number}.", 3 if number == 2 else None

    @step
    async def follow() -> str:
        async with resume_stream(source, by="cursor") as stream:
            screen.begin(stream)
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await follow()

    world.settings = {"progress_interval": 0.45}
    world.die(flow(), after=0.58)
    check_one_answer(world.run(flow()), 10)
    assert screen.begun[1] == ("q-0.q-1.q-2.", False, False)


@pytest.mark.parametrize("by", GOING_ON)
@pytest.mark.parametrize("when", ["called", "first"])
def test_provider_that_refuses_to_go_on_is_asked_for_a_clean_start_in_the_same_attempt(
    world, by, when
):
    async def refusing(so_far):
        if so_far:
            raise CannotResume("400: this model takes no prefill")
        async for item in opener(by)(so_far):
            yield item

    def at_once(so_far):
        if so_far:
            raise CannotResume("400: this model takes no prefill")
        return opener(by)(so_far)

    @step
    async def refused() -> str:
        async with resume_stream(refusing if when == "first" else at_once, by=by) as stream:
            screen.begin(stream)
            seen.append(current().attempt)
            async for chunk in stream:
                screen.append(chunk)
            return stream.text

    @workflow
    async def flow() -> str:
        return await refused()

    world.die(flow(), after=4.5)
    assert world.run(flow()).startswith("q1-0.")
    screen.check(10)
    assert screen.begun == [("", False, False), ("", True, False)]
    assert seen == [1, 1]


@pytest.mark.parametrize("by", GOING_ON)
def test_what_it_refused_to_go_on_from_is_not_tried_again(world, by):
    """It dies again before anything new has arrived."""

    async def refusing(so_far):
        seen.append(so_far)
        if so_far:
            raise CannotResume
        async for item in opener(by)(so_far):
            yield item

    @step
    async def refused() -> str:
        async with resume_stream(refusing, by=by) as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await refused()

    world.die(flow(), after=4.5)
    world.die(flow(), after=0.7)
    check_one_answer(world.run(flow()), 10)
    assert len([one for one in seen if one]) == 1


@pytest.mark.parametrize("by", GOING_ON)
def test_to_refuse_in_the_middle_fails_the_attempt_and_the_next_starts_clean(world, by):
    async def confused(so_far):
        count = 0
        async for item in opener(by)(so_far):
            count += 1
            if count == 4 and not seen:
                seen.append("refused")
                raise CannotResume("it has lost the thread")
            yield item

    @step(retries=1, backoff=0.001)
    async def refused() -> str:
        async with resume_stream(confused, by=by) as stream:
            screen.begin(stream)
            async for chunk in stream:
                screen.append(chunk)
            return stream.text

    @workflow
    async def flow() -> str:
        return await refused()

    assert world.run(flow()).startswith("q1-0.")
    screen.check(10)
    assert screen.begun == [("", False, False), ("", True, False)]


def test_to_refuse_a_clean_start_is_a_failure(world):
    async def never(so_far: str):
        raise CannotResume("never")
        yield ""

    @step
    async def refused() -> str:
        async with resume_stream(never, by="prefill") as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await refused()

    with pytest.raises(CannotResume):
        world.run(flow())
