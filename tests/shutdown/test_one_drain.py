"""A drain as a whole: begun once, from any thread, within any grace."""

import asyncio
import signal
import threading
import time
from contextlib import asynccontextmanager

import pytest
from drain_tools import WORKFLOWS, begun, chain, ended, nap

from outlast import Outlast, step, workflow
from outlast.execution.shutdown_state import ShutdownState
from outlast.shutdown.exit_timer import ExitTimer
from support.waiting import WAIT_SECONDS, wait_until, wait_until_async


async def _real(app) -> asyncio.Event:
    """Start a run whose step ends when the event is set."""
    end = asyncio.Event()

    @step
    async def waits() -> None:
        begun.append("waits")
        await end.wait()

    @workflow
    async def flow() -> None:
        await waits()

    await app.start(flow(), id="run")
    await wait_until_async(lambda: begun)
    return end


def test_several_calls_of_drain_are_one_drain(world):
    async def main(app):
        await app.start(chain(), id="run")
        await asyncio.sleep(1)
        assert app._shutdown.begin("first")
        assert not app._shutdown.begin("second", grace=1)
        reports = await asyncio.gather(*[app.drain(f"again {n}", grace=n) for n in range(1, 4)])
        late = await app.drain("later")
        return reports, late, await app.drains()

    reports, late, stored = world.do(main)
    assert all(report is late for report in reports)
    assert (late.reason, late.released, len(stored)) == ("first", 1, 1)


def test_a_drain_of_an_idle_app_is_over_at_once(world):
    async def main(app):
        began = app.clock()
        report = await app.drain("test")
        return report, app.clock() - began

    report, seconds = world.do(main)
    counts = (
        report.completed,
        report.released,
        report.waiting,
        report.checkpointed,
        report.not_started,
    )
    assert (counts, report.left, seconds) == ((0, 0, 0, 0, 0), [], 0.0)


@pytest.mark.parametrize("grace", [1e-6, 0.001, 1e9])
def test_a_run_at_a_boundary_is_released_within_any_grace(world, grace):
    async def main(app):
        await app.start(nap(1e6), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=grace)
        await asyncio.sleep(1)

    world.do(main)
    assert (world.status(), world.row().worker) == ("waiting", None)


def test_closing_the_app_waits_for_its_drain(world):
    async def main(app):
        await app.start(chain(), id="run")
        await asyncio.sleep(1)
        asyncio.create_task(app.drain("test"))
        await asyncio.sleep(0.1)

    world.do(main)
    assert ended == ["a"]
    assert world.kinds() == ["step", "interruption"]
    assert world.clock() - world.clock.start == pytest.approx(5, abs=0.1)


def test_a_drain_can_begin_in_any_thread(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            end = await _real(app)
            begun_by = []

            def begin():
                begun_by.append(app._shutdown.begin("from a thread"))

            threads = [threading.Thread(target=begin) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            reason = await app.wait_drain()
            end.set()
            report = await app.drain("joined")
            return reason, sorted(begun_by), report

    reason, by, report = asyncio.run(main())
    assert (reason, by) == ("from a thread", [False] * 7 + [True])
    assert (report.completed, report.reason) == (1, "from a thread")


def test_layer_1_does_not_need_the_loop(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            end = await _real(app)
            engine = app._open
            thread = threading.Thread(target=app._shutdown.begin, args=("blocked",))
            thread.start()
            wait_until(lambda: engine.store.workers()[0].draining)  # the loop is blocked here
            seen = engine.store.workers()[0].draining, app.status_provider.ready()
            end.set()
            await app.drain()
            return seen

    draining, ready = asyncio.run(main())
    assert (draining, ready) == (1, "draining: blocked")


def test_a_hundred_drained_runs_lose_and_repeat_nothing(address):
    async def first(store):
        async with Outlast(
            store, signals=0, worker=True, workflows=WORKFLOWS, ramp=0, concurrency=200, grace=600
        ) as app:
            await app.submit_many(
                [chain(0.05) for _ in range(100)], ids=[f"r{n}" for n in range(100)]
            )
            while len(begun) < 120:
                await asyncio.sleep(0.001)
            report = await app.drain("test")
            statuses = [app._open.store.run(f"r{n}").status for n in range(100)]
            if "memory" in store:
                return report, statuses, len(begun)
        async with Outlast(
            store, signals=0, worker=True, workflows=WORKFLOWS, ramp=0, returned_rate=1e6
        ) as app:
            for number in range(100):
                assert await app.result(f"r{number}", timeout=WAIT_SECONDS) == ["a", "b", "c"]
        return report, statuses, len(begun)

    report, statuses, count = asyncio.run(first(address))
    assert report.left == []
    assert "running" not in statuses
    held = report.completed + report.released
    assert held + report.not_started >= 1
    if "memory" not in address:
        assert count == 300


def test_a_sync_workflow_that_computes_past_the_drain_keeps_its_run(address):
    gate = threading.Event()

    @workflow
    def computes() -> str:
        begun.append("computes")
        gate.wait(WAIT_SECONDS)  # its own code, not a step
        return "end"

    async def main():
        async with Outlast(address, signals=0) as app:
            await app.start(computes(), id="run")
            await wait_until_async(lambda: begun)
            report = await app.drain("test", grace=1)
            held = app._open.store.run("run").worker is not None
            gate.set()
            await wait_until_async(lambda: not app._open.in_flight.executions)
            return (
                report.reason,
                held,
                app._open.store.run("run").status,
                app.status_provider.drain_view()["under_way"],
            )

    try:
        reason, held, status, under_way = asyncio.run(main())
    finally:
        gate.set()
    assert (reason, held, under_way) == ("test", True, [])
    assert status in ("queued", "done")


@pytest.fixture
def without_layer_1(monkeypatch):
    """No thread can be started for layer 1 of a drain."""
    start = threading.Thread.start

    def limited(thread):
        if thread.name == "outlast-drain":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)


@pytest.mark.usefixtures("without_layer_1")
def test_a_drain_without_a_thread_for_layer_1_releases_its_runs(address, caplog):
    """A process with too many threads can start none. Its deadline holds all the same."""

    async def main():
        async with Outlast(address, signals=0, grace=600) as app:
            end = await _real(app)
            assert app._shutdown.begin("test")
            end.set()
            return await app.drain()

    report = asyncio.run(main())
    assert (report.completed + report.released, report.left) == (1, [])
    assert report.blocked == [
        "no thread could be started to tell the store: can't start new thread"
    ]
    assert "coordinate" not in report.layers
    assert "No thread could be started" in caplog.text


@pytest.mark.usefixtures("without_layer_1")
def test_after_a_drain_that_the_store_does_not_know_of_nothing_is_consumed(address):
    async def main():
        async with Outlast(address, signals=0, grace=600, ramp=0) as app:
            queue = app.queue("q")
            await queue.put(1, id="one")
            await app.drain("test")
            before = app._open.store.run("q/one")
            await asyncio.wait_for(queue.consume(begun.append), WAIT_SECONDS)
            return before, app._open.store.run("q/one")

    before, after = asyncio.run(main())
    assert (begun, after) == ([], before)


@pytest.mark.usefixtures("without_layer_1")
def test_a_worker_that_drained_while_it_opened_claims_nothing(address):
    """The store does not know of the drain, so it would not refuse the claims."""

    @workflow
    async def flow() -> None:
        return

    @asynccontextmanager
    async def lifespan(app):
        await app.submit(flow(), id="run")
        await app.drain("test")
        yield

    async def main():
        settings = {"signals": 0, "grace": 600, "ramp": 0}
        async with Outlast(
            address, worker=True, workflows=[flow], lifespan=lifespan, **settings
        ) as app:
            assert app._open.claimers.own is not None
            await asyncio.wait_for(app._open.claimers.own.work(), WAIT_SECONDS)
            return app._open.store.run("run").lives

    assert asyncio.run(main()) == 0


def test_a_signal_while_another_thread_begins_the_drain_sets_the_deadline(monkeypatch):
    """As `POST /shutdown` does. The drain's own time does not count yet."""
    begin_drain, beginning, may_begin = (
        ShutdownState.begin_drain,
        threading.Event(),
        threading.Event(),
    )

    def begin_late(state, reason, **options):
        beginning.set()
        may_begin.wait(WAIT_SECONDS)
        begin_drain(state, reason, **options)

    armed = []
    monkeypatch.setattr(ShutdownState, "begin_drain", begin_late)
    monkeypatch.setattr(ExitTimer, "arm", lambda _, seconds, code: armed.append(seconds))

    async def main():
        async with Outlast("memory:", grace=600) as app:
            shutdown = app._shutdown
            thread = threading.Thread(target=shutdown.begin, args=("POST /shutdown",))
            thread.start()
            assert beginning.wait(WAIT_SECONDS)
            try:
                shutdown.signal_received(signal.SIGINT, time.monotonic())
            finally:
                may_begin.set()
                thread.join()
            await asyncio.sleep(WAIT_SECONDS)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    (seconds,) = armed
    assert 0 < seconds < 600
