"""Calls, hooks and signals that meet a closing app."""

import asyncio
import signal
import sqlite3
import threading
from contextlib import asynccontextmanager, closing, suppress

import pytest

from outlast import Draining, Outlast, StoreUnavailable, step, workflow
from outlast.engine.consumer import Consumer
from outlast.engine.engine import Engine
from outlast.engine.registration import WorkerRegistration
from outlast.shutdown.phases import AppPhase
from support.waiting import WAIT_SECONDS, wait_until_async

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@step
async def work() -> int:
    done.append("begins")
    await asyncio.sleep(0.05)
    done.append("ends")
    return 1


@workflow
async def one() -> int:
    return await work()


def test_run_being_started_at_close_does_not_begin_afterwards(tmp_path):
    store = f"sqlite:///{tmp_path}/o.db"

    async def main() -> None:
        async with Outlast(store) as app:
            engine = app._open
            starter = asyncio.create_task(app.start(one(), id="run"))
            await asyncio.sleep(0)
        await asyncio.wait([starter], timeout=WAIT_SECONDS)
        assert starter.done()
        assert engine.in_flight.executions == {}
        async with Outlast(store) as app:
            assert await (await app.start(one(), id="run")).result(timeout=WAIT_SECONDS) == 1

    asyncio.run(main())
    assert done == ["begins", "ends"]


def test_prune_interrupted_by_close_ends_with_a_result_or_an_error(address):
    @workflow
    async def nothing() -> None: ...

    async def main() -> None:
        async with Outlast(address) as app:
            ids = [f"r{n}" for n in range(500)]
            await asyncio.gather(*[app.submit(nothing(), id=id) for id in ids])
            await asyncio.gather(*[app.cancel(id) for id in ids])
            pruning = asyncio.create_task(app.prune(0, batch=1))
            await asyncio.sleep(0)
        await asyncio.wait([pruning], timeout=WAIT_SECONDS)
        assert pruning.done()
        with suppress(StoreUnavailable):
            assert pruning.result() == len(ids)

    asyncio.run(main())


def test_start_after_close_is_refused(address):
    async def main() -> None:
        async with Outlast(address) as app:
            engine = app._open
        with pytest.raises(Draining, match="is shutting down"):
            await asyncio.wait_for(engine.runs.start(one(), "run"), WAIT_SECONDS)

    asyncio.run(main())
    assert done == []


def give_up(engine: Engine) -> None:
    """What the end of the process does for one that could not be left: its loop has ended before."""
    engine.worker._stop()
    engine.close_store()


def test_signals_and_store_are_restored_when_leaving_is_cancelled_at_the_end(tmp_path, monkeypatch):
    leave, before, threads = (
        WorkerRegistration.deregister,
        signal.getsignal(signal.SIGTERM),
        set(threading.enumerate()),
    )

    async def left(worker: WorkerRegistration) -> None:
        task.cancel()
        await asyncio.sleep(0)
        await leave(worker)

    monkeypatch.setattr(WorkerRegistration, "deregister", left)

    async def block() -> None:
        async with app:
            assert signal.getsignal(signal.SIGTERM) is not before

    async def main() -> None:
        nonlocal task
        task = asyncio.create_task(block())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert signal.getsignal(signal.SIGTERM) is before
        monkeypatch.undo()
        async with Outlast(f"sqlite:///{tmp_path}/o.db") as other:
            assert len(await other.workers()) == 1

    app = Outlast(f"sqlite:///{tmp_path}/o.db", signals=1)
    task: asyncio.Task[None]
    asyncio.run(main())
    assert "outlast-writer" not in {thread.name for thread in set(threading.enumerate()) - threads}


def test_lifespan_ends_when_a_cleanup_hook_of_the_drain_is_cancelled(address):
    async def hangs() -> None:
        task.cancel()
        await asyncio.sleep(3600)

    @asynccontextmanager
    async def living(_: Outlast):
        yield
        done.append("lifespan")

    async def block() -> None:
        async with Outlast(address, lifespan=living) as app:
            app.on_cleanup(hangs)
            app._shutdown.begin("now")

    async def main() -> None:
        nonlocal task
        task = asyncio.create_task(block())
        with pytest.raises(asyncio.CancelledError):
            await task

    task: asyncio.Task[None]
    asyncio.run(main())
    assert done == ["lifespan"]


def test_all_cleanup_hooks_run_when_leaving_is_cancelled_in_one(address):
    async def first() -> None:
        done.append("first")

    async def hangs() -> None:
        task.cancel()
        try:
            await asyncio.sleep(3600)
        finally:
            done.append("told")

    async def block(drain: bool) -> None:
        async with app:
            app.on_cleanup(first)
            app.on_cleanup(hangs)
            if drain:
                await app.drain("test")

    async def main() -> None:
        nonlocal task
        for drain in (False, True):
            task = asyncio.create_task(block(drain))
            with pytest.raises(asyncio.CancelledError):
                await task
            assert done == ["told", "first"]
            done.clear()

    app = Outlast(address, signals=0)
    task: asyncio.Task[None]
    asyncio.run(main())


def test_block_is_left_when_a_drain_begins_as_the_loop_ends(address):
    async def block() -> None:
        async with app:
            await asyncio.sleep(3600)

    async def main() -> None:
        blocks.append(asyncio.create_task(block()))
        await wait_until_async(
            lambda: app._lifecycle.is_open and app._shutdown.app_phase is AppPhase.OPEN
        )
        app._shutdown.begin("test")  # it comes to the loop in the round in which this returns

    app, blocks = Outlast(address, signals=0), list[asyncio.Task[None]]()
    asyncio.run(main())
    assert not app._lifecycle.is_open


@pytest.mark.parametrize("while_it", ["is closed", "is deregistered"])
def test_leaving_can_be_cancelled_while_the_store_is_unreachable(tmp_path, while_it, monkeypatch):
    monkeypatch.setattr("outlast.store.sqlite.connection.BUSY_SECONDS", 0.1)
    monkeypatch.setattr("outlast.store.writer.group_commit_writer.ATTEMPT_SECONDS_MIN", 0.1)
    monkeypatch.setattr("outlast.shutdown.close_steps.DEREGISTER_SECONDS", 0.2)
    file, begun, ends = tmp_path / "o.db", threading.Event(), threading.Event()

    def hang(_: object) -> None:
        begun.set()
        ends.wait(WAIT_SECONDS)

    async def block() -> None:
        async with Outlast(
            f"sqlite:///{file}", signals=0, store_patience=3600, close_timeout=1
        ) as app:
            engines.append(app._open)
            if while_it == "is closed":
                await app.queue("q").put(1)
                tasks.append(asyncio.create_task(app.queue("q").consume(hang)))
                await wait_until_async(begun.is_set)
            other.execute("BEGIN IMMEDIATE")

    async def main() -> None:
        leaving = asyncio.create_task(block())
        await wait_until_async(lambda: engines and engines[0].shutdown.closing)
        if while_it == "is deregistered":
            await wait_until_async(
                lambda: engines[0].writer._queue or engines[0].writer._health.failure
            )
        leaving.cancel()
        asyncio.get_running_loop().call_later(0.1, ends.set)
        with pytest.raises(asyncio.CancelledError):
            await leaving

    tasks, engines = list[asyncio.Task[None]](), list[Engine]()
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
        asyncio.run(main())
    give_up(*engines)


@pytest.mark.parametrize("drain", [False, True])
def test_remaining_hooks_run_after_a_hook_exits_the_program(address, drain):
    async def first() -> None:
        done.append("first")

    async def ends_it() -> None:
        raise SystemExit(4)

    @asynccontextmanager
    async def living(_: Outlast):
        yield
        done.append("lifespan")

    async def main() -> None:
        async with Outlast(address, signals=0, lifespan=living) as app:
            engines.append(app._open)
            app.on_cleanup(first)
            app.on_cleanup(ends_it)
            if drain:
                await app.drain("test")

    engines: list[Engine] = []
    with pytest.raises(SystemExit) as left:
        asyncio.run(main())
    assert left.value.code == 4
    assert done == ["first", "lifespan"]
    assert engines[0].worker._left


def test_consumers_share_one_close_timeout(monkeypatch, address):
    close, times, tasks = Consumer.close, [], []

    async def closed(consumer: Consumer, timeout: float) -> set[str]:
        if asyncio.current_task() not in tasks:  # `consume` ends by itself, too
            times.append(timeout)
            await asyncio.sleep(0.02)
        return await close(consumer, timeout)

    async def main() -> None:
        async with Outlast(address, signals=0) as app:
            engine = app._open
            tasks.extend(asyncio.create_task(app.queue(name).consume(print)) for name in "abc")
            await wait_until_async(lambda: len(engine.claimers.consumers) == 3)
            monkeypatch.setattr(Consumer, "close", closed)
            await engine.claimers.close_consumers(engine.shutdown.close_seconds)
            monkeypatch.undo()
        await asyncio.wait(tasks)

    asyncio.run(main())
    assert len(times) == 3
    assert times == sorted(times, reverse=True)
    assert times[0] - times[2] > 0.03  # each has what those before it have left
