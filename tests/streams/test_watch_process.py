"""Viewers end with their app, with a drain by a signal, and with an outage that lasts."""

import asyncio

import pytest

from outlast import Draining, Outlast, StoreUnavailable, publish, receive, workflow
from support.waiting import wait_until_async


async def collect(watch):
    return [event async for event in watch]


@workflow
async def waits() -> str:
    await publish("answer", "a question")
    return await receive("word", str)


def test_viewer_waits_for_a_waiting_run_and_ends_with_the_app(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            await app.start(waits(), id="r")
            watch = app.watch("r", "answer")
            assert (await anext(watch)).value == "a question"
            viewer = asyncio.create_task(collect(watch))
            await asyncio.sleep(0.05)
            assert not viewer.done()
        with pytest.raises(StoreUnavailable, match="was closed while run 'r' was watched"):
            await viewer

    asyncio.run(main())


def test_viewer_of_a_process_that_drains_by_a_signal_gets_its_cursor(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            await app.start(waits(), id="r")
            watch = app.watch("r", "answer")
            event = await anext(watch)
            viewer = asyncio.create_task(collect(watch))
            await asyncio.sleep(0.05)
            app._open.shutdown.note_signal()
            await app.drain("a deploy")
            with pytest.raises(Draining) as raised:
                await viewer
            assert raised.value.cursor == event.cursor
            with pytest.raises(Draining):
                await anext(app.watch("r", "answer"))

    asyncio.run(main())


def test_drain_of_a_program_that_goes_on_does_not_end_its_viewers(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            await app.start(waits(), id="r")
            await app.drain("an upgrade")
            watch = app.watch("r", "answer")
            assert (await anext(watch)).value == "a question"

    asyncio.run(main())


class Outages:
    """Keep the reads of a viewer from the store, and count those that failed."""

    def __init__(self, store, monkeypatch) -> None:
        self._store, self._monkeypatch, self.failures = store, monkeypatch, 0

    def begin(self) -> None:
        for name in ("run", "unended"):
            self._monkeypatch.setattr(self._store, name, self._fail)

    def end(self) -> None:
        self._monkeypatch.undo()

    def _fail(self, *args):
        self.failures += 1
        raise StoreUnavailable("away")


def test_viewer_waits_out_an_outage_shorter_than_patience(address, monkeypatch):
    async def main():
        async with Outlast(address, signals=0, store_patience=600, poll=0.05) as app:
            await app.start(waits(), id="r")
            watch = app.watch("r", "answer")
            await anext(watch)
            outages = Outages(app._open.store, monkeypatch)
            outages.begin()
            viewer = asyncio.create_task(anext(watch))
            await wait_until_async(lambda: outages.failures >= 2)
            assert not viewer.done()
            outages.end()
            await app.send("r", "word", "an answer")
            assert (await viewer).result == "an answer"

    asyncio.run(main())


def test_viewer_raises_after_an_outage_longer_than_patience(address, monkeypatch):
    async def main():
        async with Outlast(address, signals=0, store_patience=0.5, poll=0.05) as app:
            await app.start(waits(), id="r")
            watch = app.watch("r", "answer")
            await anext(watch)
            outages = Outages(app._open.store, monkeypatch)
            outages.begin()
            with pytest.raises(StoreUnavailable, match="away"):
                await anext(watch)
            outages.end()
            again = app.watch("r", "answer")
            assert (await anext(again)).value == "a question"

    asyncio.run(main())
