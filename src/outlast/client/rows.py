"""Turn documents of the HTTP API into the rows that they were made from.

A field that a document does not have is empty. Documents may have fields that are not known here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from outlast.codec.documents import error_document
from outlast.codec.exceptions import CANCELLED, LEFT_OPEN
from outlast.codec.rates import Rate
from outlast.engine.inspection import EffectInfo
from outlast.engine.limiters import LimiterInfo, LimitInfo
from outlast.errors import StoreBroken
from outlast.shutdown.report import CleanupResult, DrainReport, Remaining
from outlast.store.commands import verdict
from outlast.store.pauses import PausedWorkflow
from outlast.store.rows import NEVER, QueueRow, RunRow, WorkerRow
from outlast.store.session_rows import SessionRow

Document = Mapping[str, Any]

MASKED = "(masked)"
SUSPECT, READY, NOT_READY = 2, 1, 0
_CONSTANTS = {
    json.dumps(error_document(text), sort_keys=True): text for text in (CANCELLED, LEFT_OPEN)
}
"""Recorded errors that Outlast compares by identity, by their documents."""


def seconds_of(time: Any) -> float | None:
    """Return a time as seconds since the epoch, or None if there is none."""
    if not isinstance(time, str):
        return None
    return datetime.fromisoformat(time).timestamp()


def moment_of(time: Any) -> datetime | None:
    """Return a time as a datetime, or None if there is none."""
    return None if not isinstance(time, str) else datetime.fromisoformat(time)


def pause_of(document: Document) -> PausedWorkflow:
    """Return a pause of a workflow."""
    return PausedWorkflow(
        document["name"], datetime.fromisoformat(document["since"]), document["by"]
    )


def limiter_of(document: Document) -> LimiterInfo:
    """Return a limiter."""
    limits = {unit: LimitInfo(**limit) for unit, limit in document["limits"].items()}
    return LimiterInfo(document["name"], limits, document["waiting"], seconds_of(document["next"]))


def text_of(value: Any) -> str | None:
    """Return a recorded value as JSON, or None if there is none."""
    return None if value is None else json_text(value)


def json_text(value: Any) -> str:
    """Return a value as JSON, as it is recorded."""
    return json.dumps(value, separators=(",", ":"))


def error_text(document: Document | None) -> str | None:
    """Return the recorded error that a document shows."""
    if document is None:
        return None
    known = _CONSTANTS.get(json.dumps(document, sort_keys=True))
    if known is not None:
        return known
    kind, message = document["type"], document["message"]
    if not isinstance(message, str):
        message = MASKED
    if not kind:
        # The error could not be read, so the message is the whole text.
        return message
    trace = document.get("traceback")
    return json.dumps({"type": kind, "message": message, **({"traceback": trace} if trace else {})})


def run_row(document: Document) -> RunRow:
    """Return the row of a run, or of an item."""
    _check_readable(document, "id")
    status = document["status"]
    unfinished = status in ("queued", "waiting")
    waits = document.get("waiting_for") or ()
    suspect = document.get("suspect", False)
    return RunRow(
        pk=0,
        id=document["id"],
        workflow=document["workflow"],
        args=json_text(document.get("args")),
        queue=document["queue"],
        priority=document["priority"],
        status=status,
        fence=document["fence"],
        worker=document["worker"],
        token=None,
        seed="",
        parent=document["parent"],
        created=seconds_of(document["created"]) or 0.0,
        started=seconds_of(document["started"]),
        due=seconds_of(document["due"]) or (NEVER if unfinished else 0.0),
        timeout=None,
        deadline=seconds_of(document.get("deadline")),
        ended=seconds_of(document["ended"]),
        interrupted=None,
        deaths=document["deaths"],
        interruptions=document["interruptions"],
        waits="\n".join(waits),
        cancel=document["cancelling"],
        reason=document["reason"],
        failed_at=document.get("failed_at"),
        value=text_of(document.get("result")) if status == "done" else None,
        error=error_text(document["error"]),
        lives=0,
        ready=SUSPECT if suspect else NOT_READY if document["delayed"] else READY,
        mark=0,
        deaths_in_a_row=document.get("deaths_in_a_row", 0),
        interruptions_in_a_row=0,
        failures=document["failures"],
        attempts_max=document.get("attempts_max", 0),
        interruptions_max=0,
        undoing=_undoing(document["undoing"]),
        abandon_after=None,
        by=document["by"],
        key=document.get("key"),
    )


def worker_row(document: Document) -> WorkerRow:
    """Return the row of a worker."""
    _check_readable(document, "id")
    return WorkerRow(
        id=document["id"],
        host=document["host"],
        pid=document["pid"],
        started=seconds_of(document["started"]) or 0.0,
        lease_until=seconds_of(document["lease_until"]) or 0.0,
        draining=int(document["draining"]),
        lease=0.0,
        renewed=seconds_of(document["renewed"]) or 0.0,
        queues=json.dumps(document["queues"]),
        workflows=json.dumps(document["workflows"]),
        concurrency=document["concurrency"] or 0,
        asked=None,
        held=document["held"] or 0,
    )


def queue_row(document: Document) -> QueueRow:
    """Return the row of a queue."""
    _check_readable(document, "name")
    rate = document.get("per_key_rate")
    starts, period = (None, None) if rate is None else Rate.parse(rate, "per_key_rate")
    return QueueRow(
        name=document["name"],
        queued=document["queued"],
        running=document["running"],
        waiting=document["waiting"],
        parked=document["parked"],
        dead=document["dead"],
        oldest=seconds_of(document["oldest"]),
        submitted=document["submitted_last_minute"],
        ended=document["ended_last_minute"],
        depth_max=document["depth_max"],
        concurrency_max=document["concurrency_max"],
        returned=document["returned"],
        returned_since=seconds_of(document["returned_since"]),
        undoing=document["undoing"],
        stuck=document["stuck"],
        delayed=document["delayed"],
        key_concurrency_max=document.get("per_key_concurrency"),
        key_starts_max=starts,
        key_period=period,
        paused=document.get("paused", False),
    )


def session_row(document: Document) -> SessionRow:
    """Return the row of a session, with its fields but without their values."""
    _check_readable(document, "id")
    return SessionRow(
        id=document["id"],
        version=document["version"],
        updated=seconds_of(document["updated"]) or 0.0,
        expires=seconds_of(document["expires"]),
        fields=dict.fromkeys(document["fields"], ""),
        lists=dict(document["lists"]),
        owner=document["owner"],
    )


def drain_report(document: Document) -> DrainReport:
    """Return the report of a drain."""
    _check_readable(document, "worker")
    known = {
        name: value for name, value in document.items() if name in DrainReport.__dataclass_fields__
    }
    known["began"] = moment_of(document["began"])
    known["left"] = [_instance_of(Remaining, one) for one in document["left"]]
    known["cleanup"] = [_instance_of(CleanupResult, one) for one in document["cleanup"]]
    return DrainReport(**known)


def effect_info(document: Document) -> EffectInfo:
    """Return an effect."""
    undo = document["undo"]
    return EffectInfo(
        place=document["place"],
        effect=document["effect"],
        state=document["state"],
        key=document["key"],
        arguments=json_text(document["arguments"]),
        result=text_of(document["result"]),
        error=document["error"],
        since=moment_of(document["since"]),
        known=moment_of(document["known"]),
        intent=document["intent"],
        acts=document["acts"],
        compensation=document["compensation"],
        units=tuple(document["units"]),
        undo_error=document["undo_error"],
        undo=None if undo is None else effect_info(undo),
    )


def _undoing(document: Document | None) -> str | None:
    if document is None:
        return None
    return verdict(
        document["status"], error=error_text(document["error"]), reason=document["reason"]
    )


def _instance_of(kind: Any, document: Document) -> Any:
    names = kind.__dataclass_fields__
    return kind(**{name: value for name, value in document.items() if name in names})


def _check_readable(document: Document, name: str) -> None:
    """Raise StoreBroken for what the server could not read."""
    if "unreadable" in document:
        raise StoreBroken(
            f"{document.get(name)!r} {document['unreadable']}: it is damaged, or was not written "
            "by Outlast. Nothing was changed."
        )
