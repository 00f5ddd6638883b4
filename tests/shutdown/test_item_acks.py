"""Acks, claims and hooks of queue items that cross a drain."""

import asyncio
import sqlite3
import threading

import pytest

from outlast import Outlast, StoreUnavailable
from outlast.engine.in_flight_registry import HeldState
from outlast.store.commands import Ack, Record
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until_async

seen: list = []


@pytest.fixture(autouse=True)
def _clear():
    seen.clear()


@pytest.fixture
def file(tmp_path):
    return f"sqlite:///{tmp_path}/outlast.db"


async def held_up(app, file):
    """Its writer waits with a batch until the connection is closed; the task that it was given by."""
    other = sqlite3.connect(file.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    written = app._open.writer.commands
    busy = asyncio.create_task(app.queue("another").put("keeps the writer busy"))
    await wait_until_async(lambda: app._open.writer.commands > written)
    return other, busy


def test_a_handler_that_raises_draining_uses_no_attempt():
    app = App(max_attempts=1)

    async def main(app):
        async def handle(_):
            await app.wait_drain()
            await app.queue("next").put({"x": 1})

        await app.queue("q").put({"n": 1}, id="one")
        consuming = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(1)
        report = await app.drain("test")
        consuming.cancel()
        return report

    report = app.do(main)
    row = app.store.run("q/one")
    assert (row.status, row.failures, row.worker) == ("queued", 0, None)
    assert (report.completed, report.checkpointed, report.left) == (0, 1, [])


def test_a_handled_item_is_acked_without_another_claim(
    monkeypatch,
):
    """What is acked is committed with the next claim. A drain that begins while the claimer looks leaves no such claim."""
    looking, may_go_on = threading.Event(), threading.Event()

    async def main():
        async with Outlast("memory:", signals=0, grace=600) as app:
            queue, store = app.queue("q"), app._open.store
            both, handled, end = asyncio.Event(), asyncio.Event(), asyncio.Event()
            look = store.peek

            def look_slowly(*asked):
                if both.is_set():
                    looking.set()
                    may_go_on.wait(WAIT_SECONDS)
                return look(*asked)

            async def handle(item):
                seen.append(item.payload)
                if len(seen) == 2:
                    both.set()
                await (handled if item.payload == "quick" else end).wait()

            monkeypatch.setattr(store, "peek", look_slowly)
            await queue.put_many(["quick", "slow"], ids=["quick", "slow"])
            consuming = asyncio.create_task(queue.consume(handle))
            await asyncio.to_thread(looking.wait, WAIT_SECONDS)
            handled.set()
            await asyncio.sleep(0.01)
            draining = asyncio.create_task(app.drain("test"))
            await app.wait_drain()
            await wait_until_async(lambda: store.run("q/quick").status == "done")
            assert store.run("q/slow").status == "running"
            end.set()
            may_go_on.set()
            await draining
            await consuming

    try:
        asyncio.run(main())
    finally:
        may_go_on.set()


def test_on_dead_ends_for_an_item_that_fails_in_the_drain(file):
    """The consumer may be a task that is not awaited."""

    async def on_dead(info):
        await asyncio.sleep(0.1)
        seen.append(info.id)

    async def main():
        async with Outlast(
            file, signals=0, grace=600, close_timeout=100, max_attempts=1, on_dead=on_dead
        ) as app:
            begun, fail = asyncio.Event(), asyncio.Event()

            async def handle(_):
                begun.set()
                await fail.wait()
                raise ValueError("cut")

            await app.queue("q").put("work", id="one")
            consuming = asyncio.create_task(app.queue("q").consume(handle))
            await begun.wait()
            app._shutdown.begin("test")
            await app.wait_drain()
            await app._shutdown._drain_steps._coordinated.wait()
            other = sqlite3.connect(file.removeprefix("sqlite:///"), isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            fail.set()
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.shield(app._open.shutdown.finished)
            asyncio.get_running_loop().call_later(0.3, other.close)
            return consuming

    asyncio.run(main())
    assert seen == ["q/one"]


@pytest.mark.parametrize(
    "acked_by", ["its consumer", "its handler, which gives up waiting", "a task of its handler"]
)
def test_an_item_whose_ack_waits_for_the_writer_is_not_given_back(file, acked_by):
    """It was handled. If it were released, it would be handled twice."""

    async def main():
        async with Outlast(file, signals=0, grace=600) as app:
            engine, begun, end, acks = app._open, asyncio.Event(), asyncio.Event(), []

            async def handle(item):
                seen.append(item.payload)
                begun.set()
                await end.wait()
                if acked_by != "its consumer":
                    acks.append(asyncio.create_task(item.ack()))
                    await asyncio.sleep(0)
                if acked_by == "its handler, which gives up waiting":
                    acks[0].cancel()

            await app.queue("q").put("work", id="one")
            consuming = asyncio.create_task(app.queue("q").consume(handle))
            await begun.wait()
            other, busy = await held_up(app, file)
            end.set()
            await wait_until_async(
                lambda: any(
                    isinstance(waiting.command, Ack) for waiting in list(engine.writer._queue)
                )
            )
            await wait_until_async(lambda: not app._shutdown.remaining())  # the handler has ended
            app._shutdown.begin("test")
            await wait_until_async(lambda: engine.writer._urgent)
            other.close()
            await busy
            await asyncio.shield(engine.shutdown.finished)
            await consuming
            await wait_until_async(lambda: engine.store.run("q/one").status == "done")
            await wait_until_async(lambda: not engine.in_flight.begin_drain())

    asyncio.run(main())


def test_an_item_whose_ack_the_store_refused_is_dropped():
    """Else a drain would count it as one that has begun, for ever."""

    async def main(app):
        async def handle(item):
            acks.append(asyncio.create_task(item.ack()))
            await asyncio.sleep(0)

        def refuse(command, heard, **options):
            if isinstance(command, Ack):
                loop.call_later(1.0, heard, command, StoreUnavailable("it is away"))
            else:
                put(command, heard, **options)

        engine, acks, loop = app._open, [], asyncio.get_running_loop()
        put, engine.writer.enqueue = engine.writer.enqueue, refuse
        await app.queue("q").put("work", id="one")
        consuming = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(0.5)
        assert (len(engine.in_flight.in_state(HeldState.ENDING)), engine.in_flight.held()) == (
            1,
            [],
        )
        await asyncio.sleep(0.6)
        assert engine.in_flight.in_state(HeldState.ENDING) == []
        assert [str(ack.exception()) for ack in acks] == ["it is away"]
        engine.writer.enqueue = put
        consuming.cancel()
        await asyncio.wait([consuming])

    App().do(main)


def test_a_done_item_of_a_cancelled_map_is_not_called_again(
    file,
):
    async def main():
        async with Outlast(file, signals=0, grace=600) as app:
            engine, begun, end = app._open, asyncio.Event(), asyncio.Event()

            async def work(item):
                seen.append(item)
                begun.set()
                await end.wait()

            mapping = asyncio.create_task(app.map(work, ["a"], id="m"))
            await begun.wait()
            other, busy = await held_up(app, file)
            end.set()
            await wait_until_async(
                lambda: any(
                    isinstance(waiting.command, Record) for waiting in list(engine.writer._queue)
                )
            )
            mapping.cancel()
            await asyncio.wait([mapping])
            app._shutdown.begin("test")
            await wait_until_async(lambda: engine.writer._urgent)
            other.close()
            await busy
            await asyncio.shield(engine.shutdown.finished)
        async with Outlast(file, signals=0) as app:
            await app.map(work, ["a"], id="m")

    asyncio.run(main())
    assert seen == ["a"]


def test_a_consumer_ends_with_a_drain_that_began_as_its_last_handler_ended():
    """Between the beginning and the loop's hearing of it: nothing of it was under way then, and it was forgotten before it was told to claim nothing more."""

    async def main():
        async with Outlast("memory:", signals=0, grace=600) as app:

            async def handle(item):
                await item.ack()
                beginning = threading.Thread(target=app._shutdown.begin, args=("test",))
                beginning.start()
                beginning.join()
                seen.append(item.payload)

            await app.queue("q").put("work")
            async with asyncio.timeout(WAIT_SECONDS):
                await app.queue("q").consume(handle)

    asyncio.run(main())
    assert seen == ["work"]
