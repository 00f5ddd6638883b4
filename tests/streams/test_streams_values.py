"""What streams may carry, what they cost and where they may be used."""

import asyncio
import contextvars
import threading

import pytest
from stream_model import WORD, check_one_answer
from stream_work import GOING_ON, WAYS, answer, ask, model, opener, screen, seen

from outlast import (
    Evicted,
    LimitExceeded,
    NotInRun,
    Outlast,
    OutlastError,
    SettingsError,
    Unrecordable,
    current,
    progress,
    resume_stream,
    step,
    workflow,
)
from outlast.store.verbs import Save
from outlast.testing import App
from support.waiting import WAIT_SECONDS


@pytest.mark.parametrize("by", WAYS)
def test_stream_of_bytes(world, by):
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


def test_stream_that_has_become_one_of_bytes_starts_clean(world):
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
def test_text_that_is_too_long_is_a_clear_error(world, by):
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


def test_short_one_that_is_too_long_is_noticed_when_the_block_is_left(world):
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
def test_source_that_gives_something_else_is_a_clear_error(world, by, item, match):
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


def test_provider_that_cannot_go_on_costs_two_writes(world):
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


class CountingText(str):
    """Text that counts the characters that are copied where it is joined or added."""

    __slots__ = ()
    copied = 0

    def join(self, parts):
        return self._count(str.join(self, parts))

    def __add__(self, other):
        return self._count(str.__add__(self, other))

    def __radd__(self, other):
        return self._count(str(other) + str(self))

    def _count(self, text: str) -> str:
        CountingText.copied += len(text)
        return text


def test_long_text_costs_no_more_a_chunk_than_a_short_one():
    """Were the text copied at each chunk, characters would be copied a thousand times on average."""
    CountingText.copied, chunks = 0, 2_000

    async def source(so_far: str):
        for _ in range(chunks):
            yield CountingText("tide")

    @step
    async def long() -> int:
        async with resume_stream(source, by="prefill") as stream:
            stream._type = CountingText
            async for _ in stream:
                pass
            return len(stream.text)

    @workflow
    async def flow() -> int:
        return await long()

    assert App(progress_interval=1e6).run(flow()) == 4 * chunks
    assert 4 * chunks <= CountingText.copied < 4 * chunks * 10


def test_it_is_for_a_steps_body_only():
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
