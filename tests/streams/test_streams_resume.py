"""After a death a stream continues or starts clean, and the consumer sees which."""

import asyncio
import os

import pytest
from stream_model import WORD, check_one_answer
from stream_work import GOING_ON, WAYS, ask, model, opener, screen, seen

from outlast import (
    SettingsError,
    current,
    resume_stream,
    step,
    workflow,
)
from outlast.testing import crash_everywhere


@pytest.mark.parametrize("by", WAYS)
def test_undisturbed_answer_is_what_the_model_said(world, by):
    text = world.run(ask(by))
    screen.check(10)
    assert text == screen.shown[-1]
    assert screen.begun == [("", False, False)]
    assert model.closed == 1


@pytest.mark.parametrize("by", GOING_ON)
def test_after_a_death_the_step_goes_on_from_what_had_arrived(world, by):
    world.die(ask(by), after=4.5)
    text = world.run(ask(by))
    screen.check(10)
    assert screen.begun == [("", False, False), ("q0-0.q0-1.q0-2.q0-3.", False, False)]
    assert text.startswith("q0-0.")
    assert len(model.asked) == 2


def test_provider_that_cannot_go_on_starts_clean_and_says_so(world):
    world.die(ask("restart"), after=4.5)
    text = world.run(ask("restart"))
    screen.check(10)
    assert screen.begun == [("", False, False), ("", True, False)]
    assert text.startswith("q1-0."), "another answer, and nothing of the first one"


@pytest.mark.parametrize("by", WAYS)
def test_stream_resumes_after_several_deaths(world, by):
    for _ in range(4):
        world.die(ask(by), after=2.5)
    text = world.run(ask(by))
    screen.check(10)
    check_one_answer(text, 10)
    assert [len(WORD.findall(begun[0])) for begun in screen.begun] == (
        [0, 2, 4, 6, 8] if by in GOING_ON else [0] * 5
    )


@pytest.mark.parametrize("by", WAYS)
def test_death_before_anything_has_arrived_is_no_restart(world, by):
    world.die(ask(by), after=0.5)
    world.run(ask(by))
    screen.check(10)
    assert screen.begun == [("", False, False)] * 2


@pytest.mark.parametrize("by", WAYS)
def test_connection_that_breaks_is_the_same_within_one_life(world, by):
    model.breaks_at = [3, 7]
    text = world.run(ask(by))
    screen.check(10)
    check_one_answer(text, 10)
    lengths = [len(WORD.findall(begun[0])) for begun in screen.begun]
    assert lengths == ([0, 3, 7] if by in GOING_ON else [0, 0, 0])
    assert [begun[1] for begun in screen.begun] == [False, by == "restart", by == "restart"]


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize(
    "store", ["memory:", "sqlite"] if "OUTLAST_TEST_KILLS" in os.environ else ["memory:"]
)
def test_stream_is_whole_after_a_crash_at_every_write(by, store):
    @step
    async def measured() -> int:
        async with resume_stream(opener(by), by=by) as stream:
            screen.begin(stream)
            async for chunk in stream:
                screen.append(chunk)
            check_one_answer(stream.text, 10)
            return len(stream.text)

    @workflow
    async def flow() -> int:
        return await measured()

    model.voices = iter(["one", "two"] * 1000)
    report = crash_everywhere(flow(), store=store, progress_interval=1.5)
    assert report.crashes > (8 if by in GOING_ON else 4)
    screen.check(10)


@pytest.mark.parametrize("by", WAYS)
def test_model_is_not_asked_again_for_an_answer_that_is_whole(world, by):
    @step
    async def thorough() -> str:
        async with resume_stream(opener(by), by=by) as stream:
            screen.begin(stream)
            seen.append([chunk async for chunk in stream])
            text = stream.text
        await asyncio.sleep(1000)
        return text

    @workflow
    async def flow() -> str:
        return await thorough()

    world.die(flow(), after=100)
    check_one_answer(world.run(flow()), 10)
    assert len(model.asked) == 1
    assert screen.begun[1] == ("".join(seen[0]), False, True)
    assert (len(seen[0]), seen[1]) == (10, [])


@pytest.mark.parametrize("by", WAYS)
def test_nor_by_an_attempt_that_follows_in_the_same_life(world, by):
    @step(retries=3, backoff=0.001)
    async def flaky() -> str:
        async with resume_stream(opener(by), by=by) as stream:
            text = await stream.read()
        if current().attempt < 3:
            raise ValueError
        return text

    @workflow
    async def flow() -> str:
        return await flaky()

    check_one_answer(world.run(flow()), 10)
    assert len(model.asked) == 1


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("inside", [True, False])
def test_answer_that_is_no_good_is_discarded_and_asked_for_again(world, by, inside):
    @step(retries=3, backoff=0)
    async def picky() -> str:
        async with resume_stream(opener(by), by=by) as stream:
            screen.begin(stream)
            text = await stream.read()
            if inside and not text.startswith("q2"):
                stream.discard()
                raise ValueError(text)
        if not text.startswith("q2"):
            stream.discard()
            raise ValueError(text)
        return text

    @workflow
    async def flow() -> str:
        return await picky()

    assert world.run(flow()).startswith("q2-0.")
    assert screen.begun == [("", False, False), ("", True, False), ("", True, False)]


@pytest.mark.parametrize("by", WAYS)
def test_what_is_discarded_stays_so_over_a_death(world, by):
    @step
    async def picky() -> str:
        async with resume_stream(opener(by), by=by) as stream:
            screen.begin(stream)
            async for _ in stream:
                if stream.text.endswith("q0-5."):
                    stream.discard()
            return stream.text

    @workflow
    async def flow() -> str:
        return await picky()

    world.die(flow(), after=9.5)
    assert world.run(flow()).startswith("q1-0.")
    assert screen.begun[1] == ("", True, False)


@pytest.mark.parametrize("by", WAYS)
def test_consumer_that_has_enough_leaves_and_the_stream_is_closed(world, by):
    @step
    async def short() -> str:
        async with resume_stream(opener(by), by=by) as stream:
            async for _ in stream:
                if len(WORD.findall(stream.text)) == 3:
                    break
            assert not stream.complete
        assert model.closed == 1
        return stream.text

    @workflow
    async def flow() -> str:
        return await short()

    check_one_answer(world.run(flow()), 3)


def test_trim_moves_the_place_to_go_on_from_back(world):
    """Some providers refuse a text that ends with white space."""
    texts = []

    async def spaced(so_far: str):
        texts.append(so_far)
        assert so_far == so_far.rstrip()
        for word in (
            ["one", " ", "two", " \n", "three"][2 if so_far else 0 :]
            if so_far != "one two"
            else ["\n", "3"]
        ):
            await asyncio.sleep(1)
            yield word

    @step
    async def trimmed() -> str:
        async with resume_stream(spaced, by="prefill", trim=str.rstrip) as stream:
            seen.append(stream.resumed_from)
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await trimmed()

    world.die(flow(), after=4.5)
    assert world.run(flow()) == "one two\n3"
    assert texts == seen == ["", "one two"]


def test_trim_that_leaves_nothing_is_a_clean_start(world):
    @step
    async def trimmed() -> str:
        async with resume_stream(model.prefill, by="prefill", trim=lambda text: "") as stream:
            screen.begin(stream)
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await trimmed()

    world.die(flow(), after=4.5)
    assert world.run(flow()).startswith("q1-0.")
    assert screen.begun[1] == ("", True, False)


def test_trim_that_makes_up_text_is_refused(world):
    @step
    async def trimmed() -> str:
        async with resume_stream(model.prefill, by="prefill", trim=str.upper) as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await trimmed()

    world.die(flow(), after=4.5)
    with pytest.raises(SettingsError, match="a beginning of the text"):
        world.run(flow())
