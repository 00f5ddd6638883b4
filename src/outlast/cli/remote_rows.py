"""Turn documents of drains, schedules and stalls into rows that commands can print."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from outlast.client.rows import Document, json_text, seconds_of
from outlast.engine.schedule_rows import Definition, Firing, Overlap, ScheduleRow, State
from outlast.store.rows import DrainRow
from outlast.store.session_rows import SessionRow

MOMENT = 1e-3
"""How long before its next time a schedule has fired, as far as a document shows."""


def drain_row(document: Document) -> DrainRow:
    """Return the row of a drain."""
    began, seconds = seconds_of(document["began"]) or 0.0, document["seconds"]
    return DrainRow(
        worker=document["worker"],
        host=document["host"],
        pid=document["pid"],
        reason=document["reason"],
        began=began,
        ended=None if seconds is None else began + seconds,
        held=0,
        report=json.dumps({name: one for name, one in document.items() if name != "began"}),
        recoveries=_times_with(document["recoveries"]),
    )


def _times_with(spread: Document) -> tuple[float, ...]:
    """Return as many times as were counted, with the same percentiles."""
    if not spread:
        return ()
    count = int(spread["count"])
    half, most = math.ceil(0.5 * count), math.ceil(0.95 * count)
    times = [spread["p50"]] * half + [spread["p95"]] * (most - half)
    return (*times, *[spread["max"]] * (count - most)) if count > most else (*times,)


def schedule_row(document: Document) -> ScheduleRow:
    """Return the row of a schedule. Its next time is the one that the document shows."""
    following, last = seconds_of(document["next"]), seconds_of(document["last"])
    fired = 0.0 if following is None else following - MOMENT
    definition = Definition(
        workflow=document["workflow"],
        args=json_text(document["args"]),
        cron=document["cron"],
        every=document["every"],
        tz=document["tz"],
        overlap=Overlap(document["overlap"]),
        catch_up=document["catch_up"],
        jitter=document["jitter"],
        queue=document["queue"],
        priority=document["priority"],
        timeout=None,
        abandon_after=None,
    )
    state = State(
        # Intervals count from here.
        start=following or 0.0,
        fired=fired,
        paused=document["paused"],
        waiting=(0.0,) * document["waiting"],
        last=None if last is None else Firing(document["last_run"], last),
        skipped=document["skipped"],
        by=document["by"],
    )
    return ScheduleRow(document["name"], 0, definition, state)


def stall_rows(documents: Sequence[Document]) -> list[SessionRow]:
    """Return what blocked workers, as the sessions that keep it."""
    found: dict[str, dict[str, str]] = {}
    for one in documents:
        recorded: dict[str, Any] = {
            "count": one["times"],
            "seconds": one["seconds"],
            "at": seconds_of(one["at"]),
            "line": one["line"],
        }
        found.setdefault(one["worker"], {})[one["step"]] = json.dumps(recorded)
    return [SessionRow(worker, 0, 0.0, None, fields) for worker, fields in found.items()]


def executing_row(worker: str, name: str, timeline: Document) -> SessionRow:
    """Return the steps of a run that its worker executes, as the session that keeps them."""
    steps = [
        [one["key"], one["name"], one["kind"], one["attempt"], seconds_of(one["started"])]
        for one in timeline["executing"]
    ]
    recorded = json.dumps([timeline["run"]["fence"], steps])
    return SessionRow(worker, 0, 0.0, None, {name: recorded})
