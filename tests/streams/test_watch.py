"""A viewer receives what a run publishes, from any process, and gets a reset when it no longer holds."""

import asyncio

import pytest

import outlast.sync
from outlast import (
    BadCursor,
    DataEvent,
    EndEvent,
    Outlast,
    ResetEvent,
    UnknownRun,
    publish,
    step,
    workflow,
)

log: list = []


@pytest.fixture(autouse=True)
def empty():
    log.clear()


@step(retries=3, backoff=0.001)
async def speak(words: int, fails_at: int = -1) -> str:
    log.append("speak")
    text = ""
    async with publish("answer") as out:
        for number in range(words):
            word = f"{len(log)}w{number}."
            text += word
            await out.write(word)
            await asyncio.sleep(1)
            if len(log) == 1 and number == fails_at:
                raise ValueError("again")
    return text


@workflow
async def talk(words: int = 5, fails_at: int = -1) -> str:
    return await speak(words, fails_at)


async def collect(watch):
    return [event async for event in watch]


def shown(events):
    """Return what a viewer of a text has on its screen."""
    text = ""
    for event in events:
        if isinstance(event, ResetEvent):
            text = ""
        elif isinstance(event, DataEvent):
            text += event.value
    return text


def test_viewer_gets_every_value_and_the_end(world):
    async def main(app):
        run = await app.start(talk(), id="run")
        events = await collect(app.watch("run", "answer"))
        assert [event.kind for event in events] == ["data"] * 5 + ["end"]
        assert shown(events) == await run.result()
        end = events[-1]
        assert (end.status, end.result, end.error) == ("done", shown(events), None)

    world.do(main)


def test_viewer_that_begins_after_the_end_gets_the_same(world):
    text = world.run(talk())

    async def main(app):
        events = await collect(app.watch("run", "answer"))
        assert shown(events) == text
        assert isinstance(events[-1], EndEvent)

    world.do(main)


def test_viewer_returns_with_any_cursor_and_gets_what_follows(world):
    world.run(talk())

    async def main(app):
        events = await collect(app.watch("run", "answer"))
        for number, event in enumerate(events[:-1]):
            assert (
                await collect(app.watch("run", "answer", after=event.cursor))
                == events[number + 1 :]
            )

    world.do(main)


def test_end_is_returned_again_and_is_final(world):
    world.run(talk())

    async def main(app):
        events = await collect(app.watch("run", "answer"))
        async with app.watch("run", "answer", after=events[-1].cursor) as watch:
            assert watch.is_final
            assert [event async for event in watch] == events[-1:]
            assert watch.ended
            assert await watch.next_events() == []
        async with app.watch("run", "answer", after=events[-2].cursor) as watch:
            assert not watch.is_final

    world.do(main)


def test_retried_step_resets_its_viewers(world):
    async def main(app):
        run = await app.start(talk(5, fails_at=2), id="run")
        events = await collect(app.watch("run", "answer"))
        assert shown(events) == await run.result()
        assert [event.kind for event in events].count("reset") == 1

    world.do(main)


def test_unknown_run_raises(world):
    async def main(app):
        with pytest.raises(UnknownRun):
            async with app.watch("nobody", "answer"):
                pass

    world.do(main)


@pytest.mark.parametrize("cursor", ["", "17", "x" * 200, "0a0a0a0a.1.x.3", None.__class__])
def test_damaged_cursor_is_refused_before_anything_is_read(world, cursor):
    async def main(app):
        with pytest.raises(BadCursor, match="is not a cursor"):
            app.watch("nobody", "answer", after=cursor)

    world.do(main)


def test_cursor_of_another_stream_or_run_is_refused(world):
    world.run(talk())

    async def main(app):
        events = await collect(app.watch("run", "answer"))
        for id, stream in (("run", "other"), ("run2", "answer"), ("runa", "nswer")):
            with pytest.raises(BadCursor, match="another run"):
                app.watch(id, stream, after=events[0].cursor)

    world.do(main)


def test_run_that_publishes_nothing_has_only_an_end(world):
    world.run(talk())

    async def main(app):
        events = await collect(app.watch("run", "other"))
        assert [event.kind for event in events] == ["end"]

    world.do(main)


def test_server_gets_several_events_at_once_and_a_time_out(world):
    async def main(app):
        await app.start(talk(), id="run")
        async with app.watch("run", "answer") as watch:
            assert await watch.next_events(timeout=0.5) != []
            assert await watch.next_events(timeout=0.1) == []
            await asyncio.sleep(2)
            assert len(await watch.next_events()) == 2

    world.do(main)


def test_viewer_in_another_app_sees_the_whole_answer(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            run = await app.start(quick(), id="r")
            events = await collect(app.watch("r", "answer"))
            assert shown(events) == await run.result()

    asyncio.run(main())


@workflow
async def quick() -> str:
    return await says()


@step
async def says() -> str:
    await publish("answer", "ab")
    await publish("answer", "c")
    return "abc"


def test_sync_program_watches(address):
    with outlast.sync.Outlast(address, signals=0) as app:
        app.start(quick(), id="r")
        events = list(app.watch("r", "answer"))
        assert shown(events) == "abc"
        with app.watch("r", "answer", after=events[0].cursor) as watch:
            assert list(watch) == events[1:]
            assert watch.cursor == events[-1].cursor
            assert watch.ended
        with app.watch("r", "answer") as watch:
            assert watch.next_events() == events[:-1]
            assert watch.next_events(timeout=60) == events[-1:]
            assert watch.next_events() == []
