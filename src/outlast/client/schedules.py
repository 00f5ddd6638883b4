"""Set, list and act on schedules."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

from outlast.api.schedule import Schedule, ScheduleInfo
from outlast.api.workflow import Call
from outlast.client.calls import NamedCall, call_body
from outlast.client.rows import Document, json_text, moment_of
from outlast.client.transport import Transport, segment
from outlast.codec.identifiers import check_name
from outlast.errors import UnknownSchedule

NAME_LENGTH_MAX = 10_000


def schedule_info(document: Document) -> ScheduleInfo:
    """Return a schedule."""
    same = {name: document[name] for name in ScheduleInfo.__dataclass_fields__ if name in document}
    times = {name: moment_of(document[name]) for name in ("next", "last")}
    return ScheduleInfo(**{**same, **times, "arguments": json_text(document["args"])})


async def set_schedule(
    transport: Transport, name: str, call: Call[Any] | NamedCall[Any], schedule: Schedule
) -> ScheduleInfo:
    """Create a schedule or replace its definition, and return it."""
    timing = schedule.timing
    when = {"cron": timing.cron, "every": timing.every, "tz": timing.tz}
    others = ("overlap", "catch_up", "jitter", "queue", "priority", "key")
    options = {one: getattr(schedule, one) for one in others}
    found = await transport.act("PUT", _path(name), {**call_body(call), **when, **options})
    return schedule_info(found["schedule"])


async def list_schedules(transport: Transport) -> list[ScheduleInfo]:
    """Return all schedules, ordered by name. Damaged ones are left out."""
    found = await transport.get("/v1/schedules")
    return [schedule_info(one) for one in found["schedules"]]


async def act(transport: Transport, name: str, action: str) -> None:
    """Pause or resume a schedule."""
    await transport.act("POST", _path(name, action))


async def trigger(transport: Transport, name: str) -> str:
    """Submit a run of a schedule now, and return the run's id."""
    key = secrets.token_hex(8)
    run: str = (await transport.act("POST", _path(name, "trigger"), key=key))["run"]
    return run


async def backfill(transport: Transport, name: str, start: datetime, end: datetime) -> list[str]:
    """Submit the runs of all times of a schedule in a range, and return their ids."""
    if start.tzinfo is None or end.tzinfo is None:
        raise ValueError("start and end need a time zone, such as datetime(..., tzinfo=UTC).")
    body = {"start": start.isoformat(), "end": end.isoformat()}
    return list((await transport.act("POST", _path(name, "backfill"), body))["runs"])


async def delete(transport: Transport, name: str) -> None:
    """Delete a schedule."""
    await transport.act("DELETE", _path(name), done_if=UnknownSchedule)


def _path(name: str, *more: str) -> str:
    parts = (check_name(name, NAME_LENGTH_MAX, "schedule name"), *more)
    return "/v1/schedules/" + "/".join(map(segment, parts))
