"""Layer 3 for steps in threads, which cannot be cancelled: real threads, real time."""

import asyncio
import threading
import time

from checkpoint_tools import long, seen

from outlast import Evicted, Outlast, current, step, workflow
from outlast.api.context import progress
from outlast.shutdown.phases import DrainPhase
from support.waiting import WAIT_SECONDS, wait_until, wait_until_async

STOPS_STEPS_SOON = {"grace": 120, "checkpoint_reserve": 60, "exit_reserve": 59.6}
"""Steps are asked to stop after 0.1 s and have a minute to do so."""


LEAVES_STEPS_SOON = {"grace": 120, "checkpoint_reserve": 0.2, "exit_reserve": 119.4}
"""Steps are asked to stop after 0.1 s and are left behind soon after."""


def real(address, flow, *, then=None, **settings):
    """Start a run, drain when its step has begun, and return the report, the run, its entries and its progress."""

    async def main():
        async with Outlast(address, signals=0, **(settings or STOPS_STEPS_SOON)) as app:
            real.drain = app._shutdown
            await app.start(flow, id="run")
            await wait_until_async(lambda: seen)
            report = await app.drain("test")
            store = app._open.store
            row = store.run("run")
            kinds = [entry.kind for entry in store.journal(row.pk)]
            if then is not None:
                await then(app, row)
            return report, row, kinds, store.progress(row.pk)

    return asyncio.run(main())


def wait_until_told_to_stop() -> None:
    """Wait, in a thread that does not ask, until steps are asked to stop."""
    wait_until(lambda: real.drain.drain_phase is DrainPhase.CHECKPOINT)


def test_a_thread_that_did_not_ask_and_ends_in_the_reserve_is_recorded():
    @step
    def deaf() -> str:
        seen.append("begun")
        wait_until_told_to_stop()
        return "whole"

    @workflow
    async def flow() -> list:
        return [await deaf.aio(), await long()]

    report, row, kinds, _ = real("memory:", flow())
    assert kinds == ["step", "interruption"]
    assert (row.status, report.left, report.checkpointed) == ("queued", [], 1)


def test_a_thread_that_asked_and_ends_in_the_reserve_is_not_recorded():
    @step
    def asks() -> str:
        seen.append("begun")
        while not current().draining:
            time.sleep(0.001)
        wait_until_told_to_stop()
        return "perhaps less"

    @workflow
    async def flow() -> str:
        return await asks.aio()

    report, row, kinds, _ = real("memory:", flow())
    assert (row.status, kinds) == ("queued", ["interruption"])
    assert (report.checkpointed, report.left) == (1, [])


def test_a_thread_that_asked_and_ends_before_the_reserve_is_recorded():
    @step
    def asks() -> str:
        seen.append("begun")
        while not current().draining:
            time.sleep(0.001)
        return "what it has"

    @workflow
    async def flow() -> str:
        return await asks.aio()

    report, row, kinds, _ = real("memory:", flow(), grace=600)
    assert (row.status, kinds, report.completed) == ("done", ["step"], 1)


def test_a_thread_is_stopped_when_it_saves_progress(address):
    @step
    def saves() -> str:
        with progress(int) as p:
            number = 0
            while True:
                number += 1
                try:
                    p.save(number)
                except BaseException as error:
                    seen.append((type(error), str(error), number))
                    raise
                if not seen:
                    seen.append("begun")
                time.sleep(0.01)

    @workflow
    async def flow() -> str:
        return await saves.aio()

    report, row, kinds, stored = real(address, flow())
    _, (kind, why, number) = seen
    assert (kind, why) == (Evicted, "drain: test; its time is up")
    assert (row.status, kinds) == ("queued", ["interruption"])
    assert list(stored.values()) == [str(number)], "and what it brought is saved"
    assert (report.checkpointed, report.left) == (1, [])


def test_a_hung_thread_keeps_its_run(address):
    gate = threading.Event()

    @step
    def hangs() -> str:
        seen.append("begun")
        gate.wait(WAIT_SECONDS)
        return "late"

    @workflow
    async def flow() -> str:
        return await hangs.aio()

    async def then(app, row):
        assert (row.status, row.worker) == ("running", app._open.worker.id)
        gate.set()
        await wait_until_async(lambda: app._open.store.run("run").worker is None)
        after = app._open.store.run("run")
        assert (after.status, after.worker) == ("queued", None)

    try:
        report, _, kinds, _ = real(address, flow(), then=then, **LEAVES_STEPS_SOON)
    finally:
        gate.set()
    assert kinds == []
    assert len(report.not_checkpointed) == 1
