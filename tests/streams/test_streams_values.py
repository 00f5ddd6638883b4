"""Test what streams may carry and what they cost."""

import asyncio

import pytest
from stream_model import check_one_answer
from stream_work import GOING_ON, WAYS, ask, model, opener, screen, seen

from outlast import (
    LimitExceeded,
    Unrecordable,
    resume_stream,
    step,
    workflow,
)
from outlast.store.commands import SaveProgress
from outlast.testing import App


@pytest.mark.parametrize("by", WAYS)
def test_stream_of_bytes(world, by):
    def as_bytes(item):
        return (
            item.encode() + b"\xff"
            if isinstance(item, str)
            else (item[0].encode() + b"\xff", item[1])
        )

    async def source(*so_far):
        first = [
            one.replace(b"\xff", b"").decode() if isinstance(one, bytes) else one for one in so_far
        ]
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
        written, put = [], app._open.services.store.enqueue

        def watched(command, done, **fields):
            if isinstance(command, SaveProgress):
                written.append(command)
            put(command, done, **fields)

        app._open.services.store.enqueue = watched
        await (await app.start(ask("prefill"), id="run")).result()
        return written

    world.settings = {"progress_interval": 1.0}
    written = world.do(main)
    assert 10 <= len(written) <= 13
    assert '"complete":true' in written[-1].value


def test_provider_that_cannot_go_on_costs_two_writes(world):
    async def main(app):
        written, put = [], app._open.services.store.enqueue

        def watched(command, done, **fields):
            if isinstance(command, SaveProgress):
                written.append(command)
            put(command, done, **fields)

        app._open.services.store.enqueue = watched
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

    def _count(self, text: str) -> "CountingText":
        CountingText.copied += len(text)
        return CountingText(text)


def test_long_text_costs_no_more_a_chunk_than_a_short_one():
    """Were the text copied at each chunk, characters would be copied a thousand times on average."""
    CountingText.copied, chunks = 0, 2_000

    async def source(so_far: str):
        for _ in range(chunks):
            yield CountingText("tide")

    @step
    async def long() -> int:
        async with resume_stream(source, by="prefill") as stream:
            stream._received._type = CountingText
            async for _ in stream:
                pass
            return len(stream.text)

    @workflow
    async def flow() -> int:
        return await long()

    assert App(progress_interval=1e6).run(flow()) == 4 * chunks
    assert 4 * chunks <= CountingText.copied < 4 * chunks * 10
