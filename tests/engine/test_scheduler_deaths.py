"""Workers that die or are overtaken around a firing: each time of a schedule starts one run."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from outlast import workflow
from outlast.engine.schedule_rows import Firing, ScheduleRow, firing_id
from outlast.testing import App
from outlast.testing.clock import START

HOUR = 3600.0
FIRST = Firing(firing_id("report", START + HOUR), START + HOUR)


@workflow
async def report() -> str:
    return "done"


def worker(world) -> App:
    options = {"ramp": 0, "poll": 300.0, "heartbeat": 1e4, "lease": 1e6}
    return App(world.open(), clock=world.clock, worker=True, workflows=[report], **options)


def scheduler_of(app):
    return app._open.scheduler


async def row_of(app) -> ScheduleRow:
    return await scheduler_of(app).rows.get("report")


async def schedule_hourly(app) -> None:
    await app.schedule("report", report(), every=HOUR, overlap="allow")


async def record_pending(app) -> ScheduleRow:
    """Do the first of the three writes of a firing."""
    row = await row_of(app)
    state = replace(row.state, fired=FIRST.at, pending=(FIRST,))
    assert await scheduler_of(app).rows.change(row.name, row.version, state=state)
    return await row_of(app)


async def stop_after_first_write(app):
    await record_pending(app)


async def stop_after_second_write(app):
    row = await record_pending(app)
    await scheduler_of(app).submit(row, row.state.pending)


@pytest.mark.parametrize("stop", [stop_after_first_write, stop_after_second_write])
def test_another_worker_completes_a_firing_that_a_death_cut_off(world, stop):
    async def first(app):
        await schedule_hourly(app)
        await asyncio.sleep(HOUR)
        await stop(app)

    async def second(app):
        await asyncio.sleep(60.0)
        state = (await row_of(app)).state
        return [info.id for info in await app.runs()], state.pending, state.last

    world.do(first)
    world.restart()
    assert worker(world).do(second) == ([FIRST.id], (), FIRST)


def test_worker_that_was_frozen_in_a_firing_starts_no_second_run(world):
    async def main(app):
        await schedule_hourly(app)
        frozen = await row_of(app)
        await asyncio.sleep(2.5 * HOUR)
        before = await row_of(app)
        # The frozen worker goes on with what it has read before both firings.
        overtaken = replace(frozen.state, fired=FIRST.at, pending=(FIRST,))
        rows = scheduler_of(app).rows
        assert not await rows.change("report", frozen.version, state=overtaken)
        assert await row_of(app) == before
        return len(await app.runs())

    assert worker(world).do(main) == 2


def test_worker_that_was_frozen_before_it_submits_joins_the_run(world):
    async def main(app):
        await schedule_hourly(app)
        await asyncio.sleep(1.5 * HOUR)
        row = await row_of(app)
        assert await app.result(FIRST.id) == "done"
        await scheduler_of(app).submit(row, [FIRST])
        await asyncio.sleep(60.0)
        return [(info.id, info.status) for info in await app.runs()]

    assert worker(world).do(main) == [(FIRST.id, "done")]


def test_two_workers_start_one_run_at_each_time(file_world):
    async def main(app):
        other = worker(file_world)
        async with other:
            await schedule_hourly(app)
            await asyncio.sleep(6.5 * HOUR)
            return len(await app.runs())

    assert worker(file_world).do(main) == 6


def test_definition_changes_only_after_pending_runs_were_submitted(world):
    async def main(app):
        await schedule_hourly(app)
        await asyncio.sleep(HOUR)
        await record_pending(app)
        await app.schedule("report", report(), every=2 * HOUR)
        row = await row_of(app)
        return [info.id for info in await app.runs()], row.state.pending, row.definition.every

    assert world.do(main) == ([FIRST.id], (), 2 * HOUR)
