"""What a drain leaves behind when its app is closed."""

import asyncio
import gc
import logging
import signal
import sys
import threading
from contextlib import closing

import pytest

from outlast import Draining, Outlast, step, workflow
from outlast.execution.step_execution import StepExecution
from outlast.shutdown.phases import AppPhase, DrainPhase
from outlast.store.address import store_at
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until_async

seen: list = []


@pytest.fixture(autouse=True)
def _clear():
    seen.clear()


@pytest.fixture
def file(tmp_path):
    return f"sqlite:///{tmp_path}/outlast.db"


@step
async def second() -> int:
    seen.append("second")
    return 2


def test_a_signal_after_the_drain_ends_the_wait_for_another_process():
    """As after a preStop command. It would look again at the next poll, which may be longer than the pod has."""

    @workflow
    async def elsewhere() -> None:
        return

    async def main():
        async with Outlast("memory:", poll=60) as app:
            run = await app.submit(elsewhere(), queue="elsewhere")
            waiting = asyncio.create_task(run.result())
            await app.drain("a preStop command", grace=0.1)
            state = app._shutdown.state
            await wait_until_async(lambda: state.seconds_left <= 0)
            assert not waiting.done()
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(Draining, match="executing in another process"):
                await asyncio.wait_for(waiting, WAIT_SECONDS)

    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("the program's own handler"))
    try:
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["the program's own handler"]


def test_drains_side_by_side_restore_the_switch_interval():
    before = sys.getswitchinterval()

    async def main():
        for _ in range(4):
            async with (
                Outlast("memory:", signals=0) as a,
                Outlast("memory:", signals=0) as b,
                Outlast("memory:", signals=0) as c,
            ):
                await asyncio.gather(a.drain(), b.drain(), c.drain())
            assert sys.getswitchinterval() == pytest.approx(before)

    try:
        asyncio.run(main())
    finally:
        sys.setswitchinterval(before)


def test_an_ended_step_leaves_nothing_for_the_garbage_collector():
    seen: list[int] = []

    @step
    async def count() -> None:
        seen.append(bodies())

    @workflow
    async def flow() -> None:
        for _ in range(50):
            await second()
        await count()

    async def main(app):
        await (await app.start(flow(), id="run")).result()
        return bodies()

    def bodies() -> int:
        return sum(isinstance(one, StepExecution) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = bodies()  # other tests may have left some that hang
        assert App().do(main) - before < 25, "of 50"
        assert seen[0] > before, "the step that counts is found"
    finally:
        gc.enable()


def test_an_app_with_http_closes_while_the_default_executor_is_full():
    gate = threading.Event()

    async def main():
        async with Outlast("memory:", http="127.0.0.1:0", grace=600) as app:
            loop = asyncio.get_running_loop()
            waiting = [loop.run_in_executor(None, gate.wait, WAIT_SECONDS / 2) for _ in range(40)]
            await app.drain("test")
        left_first = not any(one.done() for one in waiting)
        gate.set()
        await asyncio.gather(*waiting)
        return left_first

    assert asyncio.run(main())


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("phase", [AppPhase.CLOSING, AppPhase.CLEANUP])
def test_a_drain_that_begins_while_the_app_closes_ends(file, phase, turns):
    async def main():
        app = Outlast(file, signals=0, grace=600)
        await app.__aenter__()
        engine, shutdown = app._open, app._shutdown
        close = engine.close

        async def drain(now: AppPhase) -> None:
            if now is phase:
                assert shutdown.app_phase is phase
                shutdown.begin("SIGTERM, say")
                for _ in range(turns):
                    await asyncio.sleep(0)

        async def drain_and_close(*args, **left_by):
            await drain(AppPhase.CLOSING)
            await close(*args, **left_by)

        async def drain_in_cleanup():
            await drain(AppPhase.CLEANUP)

        engine.close = drain_and_close
        app.on_cleanup(drain_in_cleanup)
        await app.__aexit__()
        return engine.worker.id, shutdown

    worker, shutdown = asyncio.run(main())
    assert shutdown.drain_phase is DrainPhase.DRAINED
    assert shutdown.app_phase is AppPhase.CLOSED
    assert (shutdown.state.finished.done(), shutdown.reporter.report.worker) == (True, worker)
    with closing(store_at(file)) as store:
        store.open()
        assert [(row.worker, row.ended is not None) for row in store.drains()] == [(worker, True)]
        assert store.workers() == []


def test_an_app_closed_long_after_its_drain_removes_its_worker(world, caplog):
    @workflow
    async def flow() -> int:
        return await second()

    async def main(app):
        await (await app.start(flow(), id="run")).result()
        await app.drain("test", grace=30)
        await asyncio.sleep(1000)
        assert len(app.store.workers()) == 1

    with caplog.at_level(logging.WARNING, "outlast"):
        world.do(main)
    assert [record.getMessage() for record in caplog.records] == []
    assert world.store.workers() == []
