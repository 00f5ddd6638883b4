"""`resume_stream`: after a death the step goes on or starts clean, the consumer sees which, and never half of one answer followed by another."""

import asyncio
import contextvars
import gc
import logging
import threading
import warnings
from functools import partial

import pytest
from stream_model import WORD, Model, Screen, check_one_answer

from outlast import (
    CannotResume,
    Evicted,
    LimitExceeded,
    NotInRun,
    Outlast,
    OutlastError,
    SettingsError,
    StreamStalled,
    Unrecordable,
    current,
    progress,
    resume_stream,
    step,
    workflow,
)
from outlast.store.verbs import Save
from outlast.testing import App, crash_everywhere

WAYS = ["restart", "prefill", "cursor"]
GOING_ON = ["prefill", "cursor"]
model, screen = Model(), Screen()
seen: list = []


@pytest.fixture(autouse=True)
def _fresh():
    global model, screen
    model, screen = Model(), Screen()
    seen.clear()


def opener(by: str):
    return {"restart": model.restart, "prefill": model.prefill, "cursor": model.cursor}[by]


@step(retries=5, backoff=0.001)
async def answer(by: str) -> str:
    async with resume_stream(opener(by), by=by) as stream:
        screen.begin(stream)
        async for chunk in stream:
            screen.append(chunk)
        return stream.text


@workflow
async def ask(by: str) -> str:
    return await answer(by)


# -- going on, and starting clean


@pytest.mark.parametrize("by", WAYS)
def test_an_undisturbed_answer_is_what_the_model_said(world, by):
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


def test_a_provider_that_cannot_go_on_starts_clean_and_says_so(world):
    world.die(ask("restart"), after=4.5)
    text = world.run(ask("restart"))
    screen.check(10)
    assert screen.begun == [("", False, False), ("", True, False)]
    assert text.startswith("q1-0."), "another answer, and nothing of the first one"


@pytest.mark.parametrize("by", WAYS)
def test_any_number_of_deaths(world, by):
    for _ in range(4):
        world.die(ask(by), after=2.5)
    text = world.run(ask(by))
    screen.check(10)
    check_one_answer(text, 10)
    assert [len(WORD.findall(begun[0])) for begun in screen.begun] == (
        [0, 2, 4, 6, 8] if by in GOING_ON else [0] * 5
    )


@pytest.mark.parametrize("by", WAYS)
def test_a_death_before_anything_has_arrived_is_no_restart(world, by):
    world.die(ask(by), after=0.5)
    world.run(ask(by))
    screen.check(10)
    assert screen.begun == [("", False, False)] * 2


@pytest.mark.parametrize("by", WAYS)
def test_a_connection_that_breaks_is_the_same_within_one_life(world, by):
    model.breaks_at = [3, 7]
    text = world.run(ask(by))
    screen.check(10)
    check_one_answer(text, 10)
    lengths = [len(WORD.findall(begun[0])) for begun in screen.begun]
    assert lengths == ([0, 3, 7] if by in GOING_ON else [0, 0, 0])
    assert [begun[1] for begun in screen.begun] == [False, by == "restart", by == "restart"]


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_a_crash_at_every_write(by, store):
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


# -- an answer that is whole


@pytest.mark.parametrize("by", WAYS)
def test_a_model_is_not_asked_again_for_an_answer_that_is_whole(world, by):
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
def test_an_answer_that_is_no_good_is_discarded_and_asked_for_anew(world, by, inside):
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
def test_a_consumer_that_has_enough_leaves_and_the_stream_is_closed(world, by):
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


# -- prefill


def test_trim_moves_the_place_to_go_on_from_back(world):
    """Some providers refuse a text that ends with white space."""
    texts = []

    async def spaced(so_far: str):
        texts.append(so_far)
        assert so_far == so_far.rstrip()
        for word in (
            ["one", " ", "two", " \n", "three"][2 if so_far else 0 :] if so_far != "one two" else ["\n", "3"]
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


def test_a_trim_that_leaves_nothing_is_a_clean_start(world):
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


def test_a_trim_that_makes_up_text_is_refused(world):
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


# -- cursors


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
def test_a_cursor_is_any_plain_json_and_comes_back_as_it_was(world, cursor):
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


def test_a_cursor_that_cannot_be_recorded_is_a_clear_error(world):
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


# -- a provider that turns out not to be able


@pytest.mark.parametrize("by", GOING_ON)
@pytest.mark.parametrize("when", ["called", "first"])
def test_a_provider_that_refuses_to_go_on_is_asked_for_a_clean_start_in_the_same_attempt(world, by, when):
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


# -- silence


@pytest.mark.parametrize("by", WAYS)
def test_a_silent_server_is_an_error_and_the_next_attempt_goes_on(world, by):
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
    assert "gave nothing for 5 s" in str(error)
    assert model.closed == 2, "the silent one too"


def test_the_consumers_own_time_is_not_silence(world):
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


def test_a_time_out_of_the_source_itself_is_its_own(world):
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


# -- half an answer is not taken for a whole one


@pytest.mark.parametrize("by", GOING_ON)
@pytest.mark.parametrize("stall", [None, 3])
def test_a_stream_that_failed_does_not_pass_for_one_that_ended(world, by, stall):
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


def test_a_source_that_swallows_the_stall_is_stalled_all_the_same(world):
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


# -- whose it is


def test_an_attempt_that_is_over_saves_nothing_into_the_next(world):
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


def test_streams_of_one_step_are_told_apart_by_what_they_ask_in_whatever_order(world):
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


def test_the_same_question_asked_twice_is_two_answers(world):
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


def test_nor_what_another_model_said(world):
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


def test_a_stream_and_the_steps_own_progress_do_not_meet(world):
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


def test_a_client_is_bound_and_not_part_of_what_is_asked(world):
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


# -- drains


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("where", ["waiting for the model", "with the consumer"])
def test_a_drain_closes_the_source_at_once_and_the_next_life_goes_on_from_the_last_chunk(world, by, where):
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


def test_a_stream_that_would_lose_everything_does_not_count_as_one_that_can_be_stopped(world):
    """A drain stops a step with progress at once if it will hardly end in time. One that must start again may try."""

    async def main(app):
        for _ in range(5):
            app._open.durations.add("ask", "answer", 1000.0)
        for by in WAYS:
            await app.start(ask(by), id=by)
        await asyncio.sleep(3.5)
        bodies = {by: next(iter(app._open.lives[by].bodies.values())) for by in WAYS}
        return {by: body.can_save for by, body in bodies.items()}

    assert world.do(main) == {"restart": False, "prefill": True, "cursor": True}


def test_a_run_that_is_cancelled_closes_its_stream(world):
    async def main(app):
        run = await app.start(ask("prefill"), id="run")
        await asyncio.sleep(3.5)
        await app.cancel("run", "enough")
        with pytest.raises(OutlastError):
            await run.result()

    world.do(main)
    assert model.closed == 1


def test_a_step_that_takes_too_long_leaves_its_text_to_the_next_attempt(world):
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


# -- closing


def test_a_source_that_fails_to_close_does_not_hide_why_it_was_left(world, caplog):
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
    assert "closing the stream" in caplog.text
    with pytest.raises(OSError, match="cannot close"):
        world.run(flow("enough"), id="other")


def test_an_iterator_that_is_no_generator_is_fine(world):
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


# -- values


@pytest.mark.parametrize("by", WAYS)
def test_a_stream_of_bytes(world, by):
    def as_bytes(item):
        return item.encode() + b"\xff" if isinstance(item, str) else (item[0].encode() + b"\xff", item[1])

    async def source(*so_far):
        first = [one.replace(b"\xff", b"").decode() if isinstance(one, bytes) else one for one in so_far]
        seen.append(so_far)
        async for item in opener(by)(*first):
            yield as_bytes(item)

    @step
    async def raw() -> bytes:
        async with resume_stream(source, by=by, type=bytes) as stream:
            assert isinstance(stream.text, bytes)
            assert isinstance(stream.resumed_from, bytes)
            return await stream.read()

    @workflow
    async def flow() -> bytes:
        return await raw()

    world.die(flow(), after=4.5)
    text = world.run(flow())
    assert text.count(b"\xff") == 10
    check_one_answer(text.replace(b"\xff", b"").decode(), 10)
    assert seen[0] == {"restart": (), "prefill": (b"",), "cursor": (None,)}[by]


def test_a_stream_that_has_become_one_of_bytes_starts_clean(world):
    type = str

    async def source(so_far):
        seen.append(so_far)
        for number in range(10):
            await asyncio.sleep(1)
            yield type().join([f"q-{number}." if type is str else f"q-{number}.".encode()])

    @step
    async def raw() -> int:
        async with resume_stream(source, by="prefill", type=type) as stream:
            screen.begun.append(stream.restarted)
            return len(await stream.read())

    @workflow
    async def flow() -> int:
        return await raw()

    world.die(flow(), after=4.5)
    type = bytes
    assert world.run(flow()) == 40
    assert seen == ["", b""]
    assert screen.begun == [False, True]


def test_any_text_comes_back_as_it_was(world):
    odd = ["\x00", "é\n", "\U0001f600", '"\\', "\ud800", "\u2028", "", "x"]

    async def source(so_far: str):
        seen.append(so_far)
        for piece in odd if not so_far else ["."]:
            yield piece
        if not so_far:
            await asyncio.sleep(1000)

    @step
    async def copy() -> int:
        async with resume_stream(source, by="prefill") as stream:
            return len(await stream.read())

    @workflow
    async def flow() -> int:
        return await copy()

    world.die(flow(), after=10)
    assert world.run(flow()) == len("".join(odd)) + 1
    assert seen == ["", "".join(odd)]


@pytest.mark.parametrize("by", GOING_ON)
def test_a_text_that_is_too_long_is_a_clear_error(world, by):
    """At the latest when it is to be written."""

    async def source(so_far):
        for number in range(1000):
            await asyncio.sleep(0.01)
            yield ("x" * 100, number) if by == "cursor" else "x" * 100

    @step(retries=3)
    async def long() -> int:
        async with resume_stream(source, by=by) as stream:
            try:
                return len(await stream.read())
            finally:
                seen.append(len(stream.text))

    @workflow
    async def flow() -> int:
        return await long()

    world.settings = {"value_size_max": 10_000}
    with pytest.raises(LimitExceeded, match=r"the stream source of step .*long: .*value_size_max"):
        world.run(flow())
    assert len(seen) == 1, "it is not tried again"
    assert seen[0] < 20_000, "and noticed when the next write is due"


def test_a_short_one_that_is_too_long_is_noticed_when_the_block_is_left(world):
    async def source(so_far: str):
        yield "x"
        yield "x" * 20_000

    @step
    async def long() -> int:
        async with resume_stream(source, by="prefill") as stream:
            return len(await stream.read())

    @workflow
    async def flow() -> int:
        return await long()

    world.settings = {"value_size_max": 10_000}
    with pytest.raises(LimitExceeded, match="value_size_max"):
        world.run(flow())


@pytest.mark.parametrize(
    ("by", "item", "match"),
    [
        ("restart", b"x", "type=bytes"),
        ("restart", 3, "not str"),
        ("restart", None, "not str"),
        ("restart", ("x", 1), "not str"),
        ("prefill", ["x"], "not str"),
        ("cursor", "x", "pairs of a chunk and a cursor"),
        ("cursor", (3, "x"), "not str"),
    ],
)
def test_a_source_that_gives_something_else_is_a_clear_error(world, by, item, match):
    async def source(*so_far):
        yield item

    @step(retries=3)
    async def wrong() -> str:
        seen.append(1)
        async with resume_stream(source, by=by) as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await wrong()

    with pytest.raises(Unrecordable, match=match):
        world.run(flow())
    assert seen == [1]


# -- what it costs


def test_writes_are_throttled_however_many_chunks_there_are(world):
    model.words, model.pause = 1000, 0.01

    async def main(app):
        written, put = [], app._open.writer.put

        def watched(verb, done, **fields):
            if isinstance(verb, Save):
                written.append(verb)
            put(verb, done, **fields)

        app._open.writer.put = watched
        await (await app.start(ask("prefill"), id="run")).result()
        return written

    world.settings = {"progress_interval": 1.0}
    written = world.do(main)
    assert 10 <= len(written) <= 13
    assert '"complete":true' in written[-1].value


def test_a_provider_that_cannot_go_on_costs_two_writes(world):
    async def main(app):
        written, put = [], app._open.writer.put

        def watched(verb, done, **fields):
            if isinstance(verb, Save):
                written.append(verb)
            put(verb, done, **fields)

        app._open.writer.put = watched
        await (await app.start(ask("restart"), id="run")).result()
        return written

    world.settings = {"progress_interval": 0.001}
    assert len(world.do(main)) == 2


def test_a_long_text_costs_no_more_a_chunk_than_a_short_one():
    """Half a million chunks: were the text copied at each, it would take minutes."""

    async def source(so_far: str):
        for _ in range(500_000):
            yield "tide"

    @step
    async def long() -> int:
        async with resume_stream(source, by="prefill") as stream:
            async for _ in stream:
                pass
            return len(stream.text)

    @workflow
    async def flow() -> int:
        return await long()

    assert App(progress_interval=1e6).run(flow()) == 2_000_000


# -- where it may be used


def test_it_is_for_a_steps_body_only():
    with pytest.raises(NotInRun):
        resume_stream(model.restart)

    @workflow
    async def flow() -> None:
        resume_stream(model.restart)

    with pytest.raises(NotInRun):
        App().run(flow())


def test_a_workflow_that_a_steps_body_has_started_is_no_steps_body():
    @workflow
    async def child() -> str:
        for ask_for in (lambda: resume_stream(model.restart), progress):
            with pytest.raises(NotInRun):
                ask_for()
        return "refused"

    @step
    async def starts() -> str:
        async with Outlast("memory:", signals=0) as app:
            return await (await app.start(child())).result()

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


def test_it_is_read_inside_its_block_and_opened_once(world):
    @step
    async def wrong() -> str:
        stream = resume_stream(model.restart)
        with pytest.raises(OutlastError, match="not open"):
            await anext(stream)
        async with stream:
            await anext(stream)
        with pytest.raises(OutlastError, match="closed"):
            await anext(stream)
        with pytest.raises(OutlastError, match="opened before"):
            async with stream:
                pass
        assert stream.text == "q0-0."
        return repr(stream)

    @workflow
    async def flow() -> str:
        return await wrong()

    assert "restart" in world.run(flow())
    assert model.closed == 1


def test_a_step_within_a_step_has_its_own(world):
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


def test_it_works_in_a_thread_that_has_a_loop_of_its_own(address):
    model.pause = 0.001

    @step
    def threaded() -> str:
        return asyncio.run(answer.fn("prefill"))

    @workflow
    async def flow() -> str:
        return await threaded.aio()

    async def main():
        async with Outlast(address, signals=0, progress_interval=0.001) as app:
            return await (await app.start(flow())).result(timeout=20)

    check_one_answer(asyncio.run(main()), 10)


def test_a_thread_that_the_first_attempt_left_behind_saves_nothing(world):
    """With its context, but without its step."""
    go, done, errors = threading.Event(), threading.Event(), []

    @step(retries=1, backoff=0.001)
    async def leaky() -> str:
        async with resume_stream(model.prefill, by="prefill") as stream:
            screen.begin(stream)
            await anext(stream)
            if current().attempt == 1:

                def late():
                    go.wait(5)
                    try:
                        stream.discard()
                    except BaseException as error:
                        errors.append(type(error))
                    done.set()

                context = contextvars.copy_context()
                threading.Thread(target=context.run, args=(late,)).start()
                raise ValueError
            go.set()
            done.wait(5)
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await leaky()

    check_one_answer(world.run(flow()), 10)
    assert errors == [Evicted]


def test_a_function_that_returns_a_stream_instead_of_being_one_is_told_how_to_become_one(world):
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
