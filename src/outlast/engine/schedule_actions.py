"""Pause, fire and delete schedules through the engine of an open app."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from typing import TYPE_CHECKING

from outlast.codec.identifiers import check_name
from outlast.engine.actions import checked_by
from outlast.engine.schedule_rows import Firing, ScheduleRow, firing_id
from outlast.errors import LimitExceeded, UnknownSchedule
from outlast.settings import Settings
from outlast.store.commands import Refused, UpdateSession

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

TRIGGERS = "triggers"
"""The session space of triggers that may be repeated, each with the time of its run."""
TRIGGER_SECONDS = 86_400.0
"""How long a trigger is recognised as a repeat."""
TIME = "time"


async def pause(engine: Engine, name: str, *, paused: bool, by: str | None = None) -> None:
    """Pause or resume a schedule."""
    check_schedule_name(name, engine.settings)
    if not await engine.scheduler.pause(name, paused=paused, by=checked_by(engine, by)):
        raise UnknownSchedule(name)


async def trigger(
    engine: Engine, name: str, *, token: str | None = None, by: str | None = None
) -> str:
    """Submit a run of a schedule now, and return its id.

    A repeat with the same token returns the id of the same run. The token is durable before the
    run, so a repeat after a crash in between submits that run.
    """
    by = checked_by(engine, by)
    row = await row_of(engine, name)
    now = round(engine.store.now(), 3)
    if token is not None:
        now = await _time_of_trigger(engine, name, token, now)
    firing = Firing(firing_id(name, now), now)
    await engine.scheduler.submit(row, [firing], by)
    return firing.id


async def _time_of_trigger(engine: Engine, name: str, token: str, now: float) -> float:
    """Return the time of the first trigger with this token, which is `now` unless it is known."""
    id = hashlib.sha256(f"{name}\0{token}".encode()).hexdigest()
    command = UpdateSession(
        id,
        secrets.token_hex(8),
        {TIME: repr(now)},
        ttl=TRIGGER_SECONDS,
        space=TRIGGERS,
        absent=(TIME,),
    )
    if not isinstance(await engine.writer.execute(command), Refused):
        return now
    found = await engine.client.read(engine.store.session, id, TRIGGERS)
    return now if found is None else float(found.fields[TIME])


async def backfill(
    engine: Engine, name: str, start: datetime, end: datetime, *, by: str | None = None
) -> list[str]:
    """Submit the runs of all firings from `start` until before `end`, and return their ids."""
    by = checked_by(engine, by)
    row = await row_of(engine, name)
    firings = firings_between(row, start, end, engine.settings.submit_many_max)
    await engine.scheduler.submit(row, firings, by)
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


def check_schedule_name(name: str, settings: Settings) -> str:
    """Return the name of a schedule. The ids of its runs must not become too long."""
    check_name(name, settings.name_length_max, "schedule name")
    length = len(firing_id(name, 0.001))
    if length > settings.id_length_max:
        raise LimitExceeded(
            "id_length_max", settings.id_length_max, length, f"ids of the runs of {name[:40]!r}"
        )
    return name


def firings_between(row: ScheduleRow, start: datetime, end: datetime, most: int) -> list[Firing]:
    """Return the firings from `start` until before `end`. Raise LimitExceeded beyond `most`."""
    if start.tzinfo is None or end.tzinfo is None:
        raise ValueError("start and end need a time zone, such as datetime(..., tzinfo=UTC).")
    found: list[Firing] = []
    # A time equal to the start counts, one equal to the end does not.
    for at in row.timing.between(start.timestamp() - 1e-6, end.timestamp() - 1e-6):
        found.append(Firing(firing_id(row.name, at), at))
        if len(found) > most:
            what = f"firings of {row.name!r} to backfill at once"
            raise LimitExceeded("submit_many_max", most, len(found), what)
    return found
