"""Opening, closing and damaged journals leave nothing behind and harm no other run."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from fleet_work import FAST, begun, job, letter, our_threads, statuses, ticks, virtual, worker

from outlast import Draining, Outlast, StoreUnavailable, step, workflow
from outlast.store.commands import DeregisterWorker
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until_async


def test_unreadable_journal_parks_its_run_and_no_other(tmp_path):
    store, parked = f"sqlite:///{tmp_path}/outlast.db", []
    ids = [f"r{number}" for number in range(4)]

    async def main():
        async with worker(store) as app:
            await app.submit_many([letter(id) for id in ids], ids=ids)
            await wait_until_async(lambda: len(begun) == 4)
            for id in ids:  # taken, and then on record
                while (await app.get(letter, id).info()).waiting_for != ("go",):
                    await asyncio.sleep(0.005)
        db = sqlite3.connect(tmp_path / "outlast.db")
        bad = "UPDATE entries SET value = CAST(x'ff' AS TEXT) WHERE kind = 'step' AND run = (SELECT pk FROM runs WHERE id = 'r0')"
        assert db.execute(bad).rowcount == 1
        db.commit()
        db.close()
        async with worker(store, on_parked=lambda info: parked.append(info.id)) as app:
            engine = app._open
            for id in ids:
                await app.send(id, "go", "went")
            assert [await app.get(letter, id).result(timeout=WAIT_SECONDS) for id in ids[1:]] == [
                "went"
            ] * 3
            await wait_until_async(lambda: parked == ["r0"] and not engine.in_flight.held())
            assert not engine.claimers.own.slots.used
            info = await app.get(letter, "r0").info()
            assert info.status == "parked"
            assert "journal cannot be read" in info.reason

    asyncio.run(main())
    assert sorted(begun) == ids


def test_cancelled_open_leaves_no_thread_and_no_open_file(tmp_path):
    before = our_threads()

    def files() -> list[str]:
        found = []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                found.append(str(link.readlink()))
        return [path for path in found if str(tmp_path) in path]

    async def main():
        for turns in (0, 1, 2, 3, 4, None):
            app = Outlast(f"sqlite:///{tmp_path}/outlast.db", **FAST)
            opening = asyncio.create_task(app.__aenter__())
            await ticks(turns or 0)
            while turns is None and not any(
                thread.name == "outlast-writer" for thread in our_threads()
            ):
                await asyncio.sleep(0)  # until the store is open, and the worker registers
            opening.cancel()
            await asyncio.wait([opening], timeout=WAIT_SECONDS)
            if not opening.cancelled():
                await app.__aexit__()
            await wait_until_async(lambda: our_threads() <= before and not files())
        async with worker(f"sqlite:///{tmp_path}/outlast.db") as app:
            assert await (await app.submit(job("x"))).result(timeout=WAIT_SECONDS) == "x"

    asyncio.run(main())


def test_cancelled_close_still_closes_the_lifespan_and_the_store(tmp_path):
    before, seen = our_threads(), []

    @asynccontextmanager
    async def lifespan(_):
        seen.append("open")
        try:
            yield
        finally:
            seen.append("closed")

    async def main():
        started, stopping = asyncio.Event(), asyncio.Event()

        @step
        async def hold_on() -> None:
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                stopping.set()
                await asyncio.sleep(0.1)

        @workflow(name="held")
        async def held() -> None:
            await hold_on()

        store = f"sqlite:///{tmp_path}/outlast.db"

        async def program():
            async with Outlast(
                store, worker=True, workflows=[held], lifespan=lifespan, **FAST
            ) as app:
                await app.submit(held(), id="held")
                await started.wait()

        task = asyncio.create_task(program())
        await asyncio.wait_for(stopping.wait(), WAIT_SECONDS)
        task.cancel()  # as a second Ctrl-C does
        await asyncio.wait([task], timeout=WAIT_SECONDS)
        assert task.cancelled()
        assert seen == ["open", "closed"]
        await wait_until_async(lambda: our_threads() <= before)
        async with Outlast(store, **FAST) as app:
            (info,) = await app.runs()
            assert (info.status, info.worker, info.deaths) == ("queued", None, 0)
            assert len(await app.workers()) == 1

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(8))
def test_claim_that_waits_at_close_raises_draining(turns):
    async def main():
        async with Outlast("memory:", **FAST) as app:
            claim = asyncio.create_task(app.queue("q").claim(wait=60))
            consumer = asyncio.create_task(app.queue("p").consume(print))
            await ticks(1 + turns)
        await asyncio.wait([claim, consumer], timeout=WAIT_SECONDS)
        with pytest.raises(Draining):
            claim.result()
        assert consumer.done()
        with suppress(StoreUnavailable, asyncio.CancelledError):
            assert consumer.result() is None

    asyncio.run(main())


@pytest.mark.parametrize("where", ["entering", "leaving"])
def test_failing_lifespan_releases_the_runs_started_in_it(tmp_path, where):
    before, store = our_threads(), f"sqlite:///{tmp_path}/outlast.db"

    @asynccontextmanager
    async def lifespan(app):
        await app.start(job("x", 60), id="x")
        await wait_until_async(lambda: begun == ["x"])
        if where == "entering":
            raise RuntimeError("no pool")
        yield
        raise RuntimeError("no pool")

    async def main():
        with pytest.raises(RuntimeError, match="no pool"):
            async with worker(store, lifespan=lifespan):
                pass
        await wait_until_async(lambda: our_threads() <= before)
        async with Outlast(store, **FAST) as app:
            (info,) = await app.runs()
            assert (info.status, info.worker, info.deaths) == ("queued", None, 0)
            assert len(await app.workers()) == 1

    asyncio.run(main())


def test_run_started_in_a_lifespan_is_released_when_it_waits():
    @asynccontextmanager
    async def lifespan(app):
        await app.start(letter("early"), id="letter")
        yield

    async def main(app):
        await asyncio.sleep(100)
        assert not app._open.in_flight.held()
        assert await statuses(app) == {"letter": "waiting"}
        await app.send("letter", "go", "went")
        return await app.get(letter, "letter").result(timeout=1)

    assert virtual(lifespan=lifespan).do(main) == "went"


@pytest.mark.parametrize("what", ["run", "item"])
def test_idle_worker_whose_claim_is_refused_claims_again_under_a_new_id(what):
    async def main(app):
        sent = []

        async def handle(item):
            sent.append(item.payload)

        consumer = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(1)
        app.store.commit(
            [DeregisterWorker(app._open.worker.id)]
        )  # taken for dead, and it does not know yet
        start = app.clock()
        if what == "run":
            assert await (await app.submit(job("x"))).result() == "x"
        else:
            await app.queue("q").put("x")
            while not sent:
                await asyncio.sleep(0.01)
        consumer.cancel()
        await asyncio.wait([consumer])
        return app.clock() - start

    assert App(worker=True, workflows=[job], ramp=0).do(main) < 1
