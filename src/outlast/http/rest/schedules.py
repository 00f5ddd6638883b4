"""Show schedules, set them and act on them."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.responses import Response

from outlast.codec.text import iso
from outlast.engine import schedule_actions
from outlast.engine.documents import schedule_document
from outlast.engine.schedule_rows import ScheduleRow, read_schedules
from outlast.http.rest.answers import (
    BackfillAnswer,
    DeletedSchedule,
    ScheduleAnswer,
    SchedulesAnswer,
    TriggerAnswer,
)
from outlast.http.rest.calls import ApiCall, answer
from outlast.http.rest.requests import (
    Backfill,
    Nothing,
    ScheduleBody,
    ScheduleView,
    Segment,
    key_of,
)
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.http.rest.workflow_calls import workflow_call
from outlast.store.protocol import Store

routes = Routes("schedules")
log = logging.getLogger("outlast.http")

NoQuery = Annotated[Nothing, Query()]
View = Annotated[ScheduleView, Query()]
Key = Annotated[str | None, Header(alias="Idempotency-Key")]


@routes.add("GET", "/v1/schedules", Access.READ, SchedulesAnswer)
async def list_schedules(call: Call, query: View) -> Response:
    """List the schedules, by name: when each fires next, and its last run."""

    def document(store: Store) -> Any:
        rows, damaged = read_schedules(store)
        now = store.now()
        found = [_document(row, now, query.upcoming) for row in rows]
        return call.masked({"schedules": found, "damaged": list(map(str, damaged))})

    return await call.answer(document)


@routes.add("GET", "/v1/schedules/{name}", Access.READ, ScheduleAnswer, problems=(404,))
async def show_schedule(name: Segment, call: Call, query: View) -> Response:
    """Show a schedule."""
    return await _answer(call, name, query.upcoming)


@routes.add("PUT", "/v1/schedules/{name}", Access.OPERATE, ScheduleAnswer, problems=(404, 409, 413))
async def set_schedule(
    name: Segment,
    call: Call,
    body: ScheduleBody,
    query: NoQuery,
) -> Response:
    """Create a schedule or replace its definition. Setting the same one changes nothing."""
    options = body.model_dump(exclude={"workflow", "args", "kwargs"})
    wanted = workflow_call(call.engine, body)
    await call.api.app.schedule(name, wanted, by=call.by, **options)
    return await _answer(call, name)


@routes.add("POST", "/v1/schedules/{name}/pause", Access.OPERATE, ScheduleAnswer, problems=(404,))
async def pause_schedule(name: Segment, call: Call, query: NoQuery) -> Response:
    """Pause a schedule. Times that pass until it is resumed do not fire later."""
    await schedule_actions.pause(call.engine, name, paused=True, by=call.by)
    return await _answer(call, name)


@routes.add("POST", "/v1/schedules/{name}/resume", Access.OPERATE, ScheduleAnswer, problems=(404,))
async def resume_schedule(name: Segment, call: Call, query: NoQuery) -> Response:
    """Resume a paused schedule from now on."""
    await schedule_actions.pause(call.engine, name, paused=False, by=call.by)
    return await _answer(call, name)


@routes.add(
    "POST",
    "/v1/schedules/{name}/trigger",
    Access.OPERATE,
    TriggerAnswer,
    status=201,
    problems=(404, 409),
)
async def trigger_schedule(
    name: Segment,
    call: Call,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Submit a run now, whatever the times.

    Repeating the same Idempotency-Key submits no second run.
    """
    id = await schedule_actions.trigger(call.engine, name, token=key_of(key), by=call.by)
    return answer({"run": id}, 201)


@routes.add(
    "POST",
    "/v1/schedules/{name}/backfill",
    Access.OPERATE,
    BackfillAnswer,
    problems=(404, 409, 413),
)
async def backfill_schedule(
    name: Segment,
    call: Call,
    body: Backfill,
    query: NoQuery,
) -> Response:
    """Submit the runs of all times in a range. Existing runs stay as they are."""
    ids = await schedule_actions.backfill(call.engine, name, body.start, body.end, by=call.by)
    return answer({"runs": ids})


@routes.add("DELETE", "/v1/schedules/{name}", Access.OPERATE, DeletedSchedule, problems=(404,))
async def delete_schedule(name: Segment, call: Call, query: NoQuery) -> Response:
    """Delete a schedule. Its runs stay."""
    await schedule_actions.delete(call.engine, name)
    log.info(
        "A schedule was deleted over HTTP.",
        extra={"event": "schedule_deleted", "by": call.by, "schedule": name},
    )
    return answer({"deleted": name})


async def _answer(call: ApiCall, name: str, upcoming: int = 0) -> Response:
    row = await schedule_actions.row_of(call.engine, name)
    return answer(call.masked({"schedule": _document(row, call.engine.store.now(), upcoming)}))


def _document(row: ScheduleRow, now: float, upcoming: int) -> dict[str, Any]:
    times = [iso(at) for at in row.upcoming(now, upcoming)]
    return {**schedule_document(row), "upcoming": times}
