"""Set, change and fire schedules through the engine of an open app."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from outlast.api.schedule import (
    Schedule,
    ScheduleInfo,
    check_schedule_name,
    firings_between,
)
from outlast.api.workflow import Call, Workflow
from outlast.engine.engine import Engine
from outlast.engine.schedule_rows import Definition, Firing, ScheduleRow, firing_id
from outlast.errors import UnknownSchedule
from outlast.settings import Settings
from outlast.settings.limits import check_size


def declared_in(
    workflows: Iterable[Workflow[..., object]], settings: Settings
) -> dict[str, Definition]:
    """Return the schedules in the code of some workflows, by name."""
    return {
        check_schedule_name(one.name, settings): one.schedule.define(
            one.call_without_arguments(), settings
        )
        for one in workflows
        if one.schedule is not None
    }


async def set_schedule(
    engine: Engine, name: str, call: Call[object], schedule: Schedule
) -> ScheduleInfo:
    """Create a schedule or replace its definition, and return it."""
    if not hasattr(call, "workflow"):
        raise TypeError(
            "app.schedule() takes a call of a workflow, such as schedule('nightly', summary()), "
            f"not {call!r}."
        )
    check_schedule_name(name, engine.settings)
    check_size(engine.settings, call.args, f"the arguments of {call.workflow.name}")
    engine.workflows.register(call.workflow)
    await engine.scheduler.set(name, schedule.define(call, engine.settings))
    return ScheduleInfo.of(await row_of(engine, name))


async def list_schedules(engine: Engine) -> list[ScheduleInfo]:
    """Return all schedules, ordered by name. Damaged ones are left out."""
    return [ScheduleInfo.of(row) for row in await engine.scheduler.rows.all(lambda _: None)]


async def pause(engine: Engine, name: str, *, paused: bool) -> None:
    """Pause or resume a schedule."""
    check_schedule_name(name, engine.settings)
    if not await engine.scheduler.pause(name, paused=paused):
        raise UnknownSchedule(name)


async def trigger(engine: Engine, name: str) -> str:
    """Submit a run of a schedule now, and return its id."""
    row = await row_of(engine, name)
    now = round(engine.store.now(), 3)
    firing = Firing(firing_id(name, now), now)
    await engine.scheduler.submit(row, [firing])
    return firing.id


async def backfill(engine: Engine, name: str, start: datetime, end: datetime) -> list[str]:
    """Submit the runs of all firings from `start` until before `end`, and return their ids."""
    row = await row_of(engine, name)
    firings = firings_between(row, start, end, engine.settings.submit_many_max)
    await engine.scheduler.submit(row, firings)
    return [firing.id for firing in firings]


async def delete(engine: Engine, name: str) -> None:
    """Delete a schedule. Its runs stay."""
    check_schedule_name(name, engine.settings)
    if not await engine.scheduler.rows.delete(name):
        raise UnknownSchedule(name)


async def row_of(engine: Engine, name: str) -> ScheduleRow:
    """Return a schedule. Raise UnknownSchedule if it does not exist."""
    check_schedule_name(name, engine.settings)
    row = await engine.scheduler.rows.get(name)
    if row is None:
        raise UnknownSchedule(name)
    return row
