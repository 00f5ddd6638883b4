"""Set and list schedules through the engine of an open app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from outlast.api.schedule import Schedule, ScheduleInfo
from outlast.engine.actions import checked_by
from outlast.engine.schedule_actions import check_schedule_name, row_of
from outlast.settings.limits import check_size

if TYPE_CHECKING:
    from outlast.api.workflow import Call, Workflow
    from outlast.engine.engine import Engine
    from outlast.engine.schedule_rows import Definition
    from outlast.settings import Settings


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
    engine: Engine, name: str, call: Call[object], schedule: Schedule, by: str | None
) -> ScheduleInfo:
    """Create a schedule or replace its definition, and return it."""
    if not hasattr(call, "workflow"):
        raise TypeError(
            "app.schedule() takes a call of a workflow, such as schedule('nightly', summary()), "
            f"not {call!r}."
        )
    check_schedule_name(name, engine.settings)
    by = checked_by(engine, by)
    check_size(engine.settings, call.args, f"the arguments of {call.workflow.name}")
    engine.workflows.register(call.workflow)
    await engine.scheduler.set(name, schedule.define(call, engine.settings), by)
    return ScheduleInfo.of(await row_of(engine, name))


async def list_schedules(engine: Engine) -> list[ScheduleInfo]:
    """Return all schedules, ordered by name. Damaged ones are left out."""
    return [ScheduleInfo.of(row) for row in await engine.scheduler.rows.all(lambda _: None)]
