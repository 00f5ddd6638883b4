"""Paused workflows: workers leave their runs in the queues."""

from __future__ import annotations

import asyncio
import logging

import pytest

from outlast import BadName, LimitExceeded, sleep, step, workflow
from outlast.store.commands import UpdateSession
from outlast.store.pauses import PAUSES
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing import App

POLL = 2.0


@step
async def work(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@workflow
async def first(seconds: float = 0.0) -> str:
    return await work(seconds)


@workflow
async def second() -> str:
    return "done"


@workflow
async def naps(seconds: float) -> str:
    await sleep(seconds)
    return await work(0)


@workflow
async def parent() -> str:
    return await first()


def worker(world, workflows=(first, second, naps, parent), **settings) -> App:
    options = {"ramp": 0, "poll": POLL, "heartbeat": 1e4, "lease": 1e6} | settings
    return App(world.open(), clock=world.clock, worker=True, workflows=list(workflows), **options)


async def status(run) -> str:
    return (await run.info()).status


def test_runs_of_a_paused_workflow_wait_and_others_do_not(world):
    async def main(app):
        await app.pause_workflow(first, by="ann")
        waits, other = await app.submit(first()), await app.submit(second())
        await asyncio.sleep(100)
        before = await status(waits), await status(other)
        await app.resume_workflow("first")
        assert await waits.result() == "done"
        return before

    assert worker(world).do(main) == ("queued", "done")


def test_a_pause_by_another_process_acts_within_a_poll(world):
    """Other work wakes the claimer at any time in between."""

    async def main(app):
        another = App(app.store, clock=world.clock)
        async with another:
            for moment in range(20):
                await (await app.submit(second())).result()
                await asyncio.sleep(moment / 20 * POLL)
                await another.pause_workflow("first")
                await asyncio.sleep(POLL + 0.1)
                waits = await app.submit(first())
                await asyncio.sleep(POLL + moment / 20 * POLL)
                await (await app.submit(second())).result()
                assert await status(waits) == "queued"
                await another.resume_workflow("first")
                await asyncio.sleep(POLL + 0.1)
                assert await status(waits) == "done"

    worker(world).do(main)


def test_runs_that_execute_continue_and_their_children_start(world):
    async def main(app):
        running = await app.submit(first(50))
        waiting = await app.submit(parent())
        await asyncio.sleep(1)
        await app.pause_workflow("first")
        return await running.result(), await waiting.result()

    assert worker(world).do(main) == ("done", "done")


def test_a_run_that_sleeps_stays_in_its_queue_when_it_wakes(world):
    async def main(app):
        run = await app.submit(naps(100))
        await asyncio.sleep(50)
        assert await status(run) == "waiting"
        await app.pause_workflow("naps")
        await asyncio.sleep(100)
        before = app.store.run(run.id).ready, await status(run)
        await app.resume_workflow("naps")
        return before, await run.result()

    assert worker(world).do(main) == ((1, "waiting"), "done")


def test_worker_whose_workflows_are_all_paused_claims_nothing(world, monkeypatch):
    """A claim without workflows would take the runs of any."""
    peek, asked = SQLiteStore.peek, set()

    def peek_and_note(store, queues, workflows):
        asked.add(workflows)
        return peek(store, queues, workflows)

    monkeypatch.setattr(SQLiteStore, "peek", peek_and_note)

    async def main(app):
        for one in (first, second):
            await app.pause_workflow(one)
        runs = [await app.submit(one()) for one in (first, second)]
        await asyncio.sleep(100)
        before = {await status(run) for run in runs}
        await app.resume_workflow("second")
        assert await runs[1].result() == "done"
        return before, await status(runs[0])

    assert worker(world, [first, second]).do(main) == ({"queued"}, "queued")
    assert asked
    assert () not in asked


def test_pauses_are_listed_and_the_first_one_counts(world):
    async def main(app):
        await app.pause_workflow("unknown here", by="ann")
        since = app.store.now()
        await asyncio.sleep(100)
        await app.pause_workflow("unknown here", by="bob")
        await app.pause_workflow(first)
        found = await app.paused_workflows()
        await app.resume_workflow("unknown here")
        await app.resume_workflow("unknown here")
        assert [(one.name, one.by) for one in found] == [("first", None), ("unknown here", "ann")]
        assert found[1].since.timestamp() == pytest.approx(since, abs=0.1)
        return [one.name for one in await app.paused_workflows()]

    assert world.do(main) == ["first"]


def test_a_pause_survives_a_restart_and_damage(world):
    async def pause(app):
        await app.pause_workflow("first")
        broken = UpdateSession("second", "t", {"pause": "{"}, space=PAUSES)
        await app._open.writer.execute(broken)

    async def main(app):
        runs = [await app.submit(one()) for one in (first, second)]
        await asyncio.sleep(100)
        return [await status(run) for run in runs], len(await app.paused_workflows())

    world.do(pause)
    world.restart()
    assert worker(world).do(main) == (["queued", "queued"], 2)


def test_runs_of_a_paused_workflow_are_not_logged_as_unknown(world, caplog):
    async def main(app):
        await app.pause_workflow("first")
        await app.submit(first())
        another = App(app.store, clock=world.clock, workflows=[parent])
        async with another:
            await another.submit(parent())
        await asyncio.sleep(100)

    with caplog.at_level(logging.WARNING):
        worker(world, [first, second]).do(main)
    waiting = [one.workflow for one in caplog.records if "wait for a worker" in one.message]
    assert waiting == ["parent"]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300])
def test_names_that_no_workflow_can_have_are_refused(world, name):
    async def main(app):
        with pytest.raises((BadName, LimitExceeded)):
            await app.pause_workflow(name)
        return await app.paused_workflows()

    assert world.do(main) == []
