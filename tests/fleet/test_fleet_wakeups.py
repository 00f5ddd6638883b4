"""Workers notice at once that a queue has room or that something is due."""

import asyncio
import time

import pytest
from fleet_work import (
    RARELY,
    begun,
    gated,
    gates,
    job,
    letter,
    until_idle,
    virtual,
    watcher,
    worker,
)

from outlast import Outlast
from outlast.store.commands import Claim, Release
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until_async


def test_full_queue_does_not_keep_a_parent_from_its_sleeping_child():
    async def main(app):
        await app.queue("default").limit(concurrency=1)
        run = await app.submit(watcher(20.0), id="watcher")
        return await run.result(timeout=1000)

    assert virtual().do(main) == "slept"


def test_run_that_ends_frees_its_place_in_a_limited_queue():
    async def main():
        gates["first"] = asyncio.Event()
        async with worker(**RARELY) as app:
            await app.queue("default").limit(concurrency=1)
            first = await app.start(gated("first"))
            await wait_until_async(lambda: begun == ["first"])
            second = await app.submit(job("second"))
            await until_idle(app, app._open.claimers.own)
            gates["first"].set()
            await first.result(timeout=WAIT_SECONDS)
            assert await second.result(timeout=WAIT_SECONDS) == "second"

    asyncio.run(main())
    assert begun == ["first", "second"]


def test_ack_frees_its_place_in_a_limited_queue_for_other_processes(tmp_path):
    async def handle(item):
        begun.append(item.payload)

    async def main():
        store = f"sqlite:///{tmp_path}/outlast.db"
        async with Outlast(store, **RARELY) as one, Outlast(store, **RARELY) as other:
            await one.queue("q").limit(concurrency=1)
            await one.queue("q").put_many([1, 2])
            item = await one.queue("q").claim()
            consumer = asyncio.create_task(other.queue("q").consume(handle))
            await wait_until_async(lambda: other._open.claimers.consumers)
            await until_idle(other, next(iter(other._open.claimers.consumers)).claimer)
            assert begun == []
            await item.ack()
            await wait_until_async(lambda: begun == [2])
            consumer.cancel()
            await asyncio.wait([consumer])

    asyncio.run(main())


def test_run_due_behind_thousands_of_others_is_not_late():
    async def main(app):
        await app.queue("elsewhere").put_many(list(range(3500)), delay=10)
        start = app.clock()
        run = await app.submit(job("x"), delay=11)
        await run.result()
        return app.clock() - start

    assert virtual().do(main) == pytest.approx(11, abs=0.1)


def test_item_due_between_two_looks_is_not_late():
    async def main(app):
        queue, store = app.queue("q"), app._open.store
        look = store.peek

        def slow(*args):
            app.clock.advance(1)
            return look(*args)

        store.peek = slow
        await queue.put(1, delay=0.5)
        await asyncio.sleep(0.1)  # the notification has come
        start = app.clock()
        item = await queue.claim(wait=1000)
        assert item.payload == 1
        return app.clock() - start

    assert App().do(main) < 5


class SlowToTell(SQLiteStore):
    """Wait for the answer to the question which messages have come since."""

    def messages(self, run, after=0):
        if after:
            time.sleep(0.5)
        return super().messages(run, after)


def test_run_woken_by_a_message_is_not_released_again(tmp_path):
    """It came with the message. What a slow store still says of later ones is not waited for by who puts it to sleep."""

    async def main():
        store = SlowToTell(tmp_path / "outlast.db")
        async with worker(store, **{**RARELY, "linger": 0.05}) as app:
            run = await app.submit(letter("x"), id="r")
            while (await run.info()).status != "waiting":
                await asyncio.sleep(0.01)
            await app.send("r", "go", "hello")
            assert await run.result(timeout=WAIT_SECONDS) == "hello"

    asyncio.run(main())


def test_other_slots_are_filled_when_new_work_has_its_turn():
    app = virtual(concurrency=4, new_share=0.2)

    async def prepare(app):
        for label in "abcd":
            run = await app.submit(job(label, 100), id=label)
            (row,) = await app._open.writer.execute(
                Claim(app._open.worker.id, label, ids=(run.id,))
            )
            await app._open.writer.execute(Release(row.pk, row.fence, "deploy"))
        await app.submit(job("new", 100), id="new")

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        app._open.claimers.own.pacer._claims = 4
        await asyncio.sleep(10)
        return begun[0], sorted(app._open.in_flight.executions)

    assert app.do(main) == ("new", ["a", "b", "c", "new"])
