"""Viewers are cheap: they share reads and values, and a slow one costs no memory."""

import asyncio
import gc

import pytest

from outlast import (
    DataEvent,
    Outlast,
    ResetEvent,
    UnknownRun,
    publish,
    step,
    workflow,
)
from outlast.engine.watching import followers, window

log: list = []


@pytest.fixture(autouse=True)
def empty():
    log.clear()


@step(retries=1, backoff=0.001)
async def speak(words: int, pause: float = 1.0, fails: bool = False) -> str:
    log.append(1)
    text = ""
    async with publish("answer") as out:
        for number in range(words):
            word = f"{len(log)}w{number}." + "x" * 40
            text += word
            await out.write(word)
            await asyncio.sleep(pause)
        if fails and len(log) == 1:
            raise ValueError("again")
    return text


@workflow
async def talk(words: int = 10, fails: bool = False) -> str:
    return await speak(words, 1.0, fails)


async def collect(watch):
    return [event async for event in watch]


def text_of(events):
    text = ""
    for event in events:
        text = "" if isinstance(event, ResetEvent) else text + getattr(event, "value", "")
    return text


def counting(monkeypatch, store, name):
    """Count the calls of a store's method, and note when they were."""
    method, calls = getattr(store, name), []

    def counted(*args, **kwargs):
        calls.append(args)
        return method(*args, **kwargs)

    monkeypatch.setattr(store, name, counted)
    return calls


@pytest.mark.parametrize("viewers", [1, 1000])
def test_viewers_of_one_stream_share_its_reads(world, monkeypatch, viewers):
    reads = counting(monkeypatch, world.store, "stream")
    rows = counting(monkeypatch, world.store, "run")

    async def main(app):
        await app.start(talk(), id="run")
        watches = [app.watch("run", "answer") for _ in range(viewers)]
        results = await asyncio.gather(*map(collect, watches))
        assert all(events == results[0] for events in results)
        assert len(results[0]) == 11

    world.do(main)
    # One for the beginning, one for each of the ten values, and a few that found nothing new.
    assert len(reads) <= 20
    assert len(rows) <= 15, "the run is looked at every other second, and when it changes"


@pytest.mark.parametrize("viewers", [1, 200])
def test_viewers_of_one_run_share_its_reads(world, monkeypatch, viewers):
    reads = counting(monkeypatch, world.store, "journal")

    async def main(app):
        await app.start(talk(), id="run")
        results = await asyncio.gather(*(collect(app.watch("run")) for _ in range(viewers)))
        assert all(events == results[0] for events in results)

    world.do(main)
    assert len(reads) <= 40, "two per second, for ten seconds"


@pytest.fixture
def small_window(monkeypatch):
    monkeypatch.setattr(window, "WINDOW_CHARACTERS", 200)


@pytest.mark.usefixtures("small_window")
@pytest.mark.parametrize("batch", [False, True])
def test_viewer_behind_the_window_misses_nothing(world, batch):
    async def main(app):
        await app.start(talk(100), id="run")
        slow = app.watch("run", "answer")
        seen = [await anext(slow)]
        fast = asyncio.create_task(collect(app.watch("run", "answer")))
        for _ in range(10):
            await asyncio.sleep(7)
            seen += await slow.next_events() if batch else [await anext(slow)]
        events = await fast
        seen += await collect(slow)
        assert seen == events
        follower = slow._follower
        assert len(follower._window._values) <= 6, "the window stays small"

    world.do(main)


@pytest.mark.usefixtures("small_window")
def test_viewer_behind_the_window_is_reset_with_the_others(world):
    async def main(app):
        run = await app.start(talk(50, fails=True), id="run")
        slow = app.watch("run", "answer")
        seen = [await anext(slow)]
        fast = asyncio.create_task(collect(app.watch("run", "answer")))
        await asyncio.sleep(30)
        seen += [await anext(slow) for _ in range(3)]
        await fast
        seen += await collect(slow)
        assert [event.kind for event in seen].count("reset") == 1
        assert text_of(seen) == await run.result() == text_of(await fast)

    world.do(main)


def test_slow_viewers_cost_no_reads(world, monkeypatch):
    reads = counting(monkeypatch, world.store, "stream")

    async def main(app):
        await app.start(talk(100), id="run")
        slow = app.watch("run", "answer")
        await anext(slow)
        before = len(reads)
        await asyncio.sleep(60)
        assert len(reads) <= before + 1
        assert len(await collect(slow)) >= 99

    world.do(main)


def test_follower_ends_with_its_last_viewer(world):
    async def main(app):
        await app.start(talk(), id="run")
        watched = app._open.followers
        first, second = app.watch("run", "answer"), app.watch("run", "answer")
        await anext(first)
        await anext(second)
        assert len(watched._by_origin) == 1
        del first
        await second.aclose()
        await asyncio.sleep(5)
        gc.collect()
        assert not watched._by_origin
        assert watched._task is None, "nothing is read without viewers"

    world.do(main)


def test_cancelled_viewer_does_not_disturb_the_others(world):
    async def main(app):
        await app.start(talk(), id="run")
        tasks = [asyncio.create_task(collect(app.watch("run", "answer"))) for _ in range(5)]
        await asyncio.sleep(3.5)
        tasks[0].cancel()
        tasks[3].cancel()
        await asyncio.wait(tasks)
        assert [len(task.result()) for task in tasks if not task.cancelled()] == [11] * 3

    world.do(main)


def test_cancelled_reads_of_pages_stay_bounded(address, monkeypatch):
    """A viewer that goes away while its page is read leaves its place only when the read ends."""
    monkeypatch.setattr(window, "WINDOW_CHARACTERS", 50)

    @workflow
    async def long() -> str:
        return await speak(20, 0.02)

    async def main():
        async with Outlast(address, signals=0, publish_interval=0.01) as app:
            run = await app.start(long(), id="r")
            first = app.watch("r", "answer")
            begin = await anext(first)
            await run.result()
            await collect(first)
            hub = app._open.followers
            running, most = 0, 0
            read = app._open.store.stream

            def slow(*args):
                nonlocal running, most
                running += 1
                most = max(most, running)
                try:
                    return read(*args)
                finally:
                    running -= 1

            monkeypatch.setattr(app._open.store, "stream", slow)
            for _ in range(20):
                task = asyncio.create_task(collect(app.watch("r", "answer", after=begin.cursor)))
                await asyncio.sleep(0)
                task.cancel()
            assert len(await collect(app.watch("r", "answer", after=begin.cursor))) == 20
            assert most <= followers.PAGES_AT_ONCE + 1
            assert not hub._reading_pages.locked()

    asyncio.run(main())


def test_values_are_not_shared_between_viewers(world):
    @step
    async def says() -> None:
        await publish("steps", {"list": [1]})

    @workflow
    async def flow() -> None:
        await says()

    world.run(flow())

    async def main(app):
        first, second = [(await collect(app.watch("run", "steps")))[0] for _ in range(2)]
        first.value["list"].append(2)
        assert second == DataEvent(first.cursor, {"list": [1]})
        assert (await collect(app.watch("run", "steps")))[0] == second

    world.do(main)


# -- the store


def test_other_server_resets_a_viewer_that_has_seen_something(world, monkeypatch):
    stream = world.store.stream
    server = "a"
    monkeypatch.setattr(
        world.store,
        "stream",
        lambda *args: row and row._replace(server=server) if (row := stream(*args)) else None,
    )

    async def main(app):
        nonlocal server
        run = await app.start(talk(), id="run")
        watch = app.watch("run", "answer")
        seen = [await anext(watch) for _ in range(3)]
        server = "b"
        seen += await collect(watch)
        assert [event.kind for event in seen] == ["data"] * 3 + ["reset"] + ["data"] * 10 + ["end"]
        assert text_of(seen) == await run.result()
        server = "c"
        again = await collect(app.watch("run", "answer", after=seen[-1].cursor))
        assert [event.kind for event in again] == ["reset"] + ["data"] * 10 + ["end"]
        assert again[0].kind == "reset"

    world.do(main)


def test_position_beyond_the_stream_resets(world):
    """Cover a store that was restored from a copy."""
    world.run(talk())

    async def main(app):
        events = await collect(app.watch("run", "answer"))
        head, _, position = events[-2].cursor.rpartition(".")
        later = f"{head}.{int(position) + 1}"
        again = await collect(app.watch("run", "answer", after=later))
        assert again[0].kind == "reset"
        assert text_of(again) == text_of(events)

    world.do(main)


def test_run_that_was_pruned_and_created_again_resets_its_viewer(world):
    world.run(talk())

    async def main(app):
        events = await collect(app.watch("run", "answer"))
        await asyncio.sleep(10)
        assert await app.prune(1) == 1
        with pytest.raises(UnknownRun):
            await collect(app.watch("run", "answer", after=events[1].cursor))
        log.clear()
        await (await app.start(talk(), id="run")).result()
        again = await collect(app.watch("run", "answer", after=events[1].cursor))
        assert [event.kind for event in again] == ["reset"] + ["data"] * 10 + ["end"]

    world.do(main)


def test_retried_run_resets_a_viewer_that_has_seen_its_end(world):
    @step
    async def says() -> str:
        await publish("answer", f"try {len(log)}")
        return "x"

    @workflow
    async def flow() -> str:
        text = await says()
        log.append(1)
        if len(log) == 1:
            raise ValueError("no")
        return text

    with pytest.raises(ValueError, match="no"):
        world.run(flow())

    async def main(app):
        events = await collect(app.watch("run", "answer"))
        assert events[-1].status == "failed"
        await app.retry("run")
        watch = app.watch("run", "answer", after=events[-1].cursor)
        assert (await anext(watch)).kind == "reset"
        assert not watch.ended
        await (await app.start(flow(), id="run")).result()
        assert [event.kind for event in await collect(watch)] == ["data", "end"]
        # One that had not seen the end goes on.
        again = await collect(app.watch("run", "answer", after=events[-2].cursor))
        assert [event.kind for event in again] == ["end"]
        assert again[-1].status == "done"

    world.do(main)
