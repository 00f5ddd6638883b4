"""Runs, queues and workers as a program sees them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from outlast.store.rows import NEVER, QueueRow, RunRow, WorkerRow
from outlast.values.exceptions import describe_error


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run, as it stands in the store."""

    id: str
    workflow: str
    status: str
    queue: str
    priority: int
    created: datetime
    started: datetime | None
    ended: datetime | None
    due: datetime | None
    worker: str | None
    fence: int
    deaths: int
    interruptions: int
    parent: str | None
    waiting_for: tuple[str, ...]
    cancelling: str | None
    reason: str | None
    error: str | None

    @classmethod
    def of(cls, row: RunRow) -> RunInfo:
        return cls(
            id=row.id,
            workflow=row.workflow,
            status=row.status,
            queue=row.queue,
            priority=row.priority,
            created=_time(row.created) or datetime.now(UTC),
            started=_time(row.started),
            ended=_time(row.ended),
            due=_time(row.due) if row.status in ("queued", "waiting") and row.due < NEVER else None,
            worker=row.worker,
            fence=abs(row.fence),
            deaths=row.deaths,
            interruptions=row.interruptions,
            parent=row.parent,
            waiting_for=tuple(name for name in row.waits.split("\n") if name),
            cancelling=row.cancel if row.ended is None else None,
            reason=row.reason,
            error=describe_error(row.error) if row.error else None,
        )


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue, as it stands in the store."""

    name: str
    queued: int
    running: int
    waiting: int
    parked: int
    dead: int
    oldest: datetime | None
    """When the oldest queued run that is due was submitted."""
    submitted_last_minute: int
    ended_last_minute: int
    depth_max: int | None
    concurrency_max: int | None

    @classmethod
    def of(cls, row: QueueRow) -> QueueInfo:
        counts = (row.queued, row.running, row.waiting, row.parked, row.dead)
        lately = (row.submitted, row.ended)
        return cls(row.name, *counts, _time(row.oldest), *lately, row.depth_max, row.concurrency_max)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker, as it stands in the store."""

    id: str
    host: str
    pid: int
    started: datetime
    renewed: datetime
    lease_until: datetime
    draining: bool
    queues: tuple[str, ...]
    """What it claims from; none if it claims nothing."""
    workflows: tuple[str, ...]
    concurrency: int
    held: int
    """How many runs and items it has."""
    seems_dead: bool

    @classmethod
    def of(cls, row: WorkerRow, *, seems_dead: bool) -> WorkerInfo:
        return cls(
            id=row.id,
            host=row.host,
            pid=row.pid,
            started=_at(row.started),
            renewed=_at(row.renewed),
            lease_until=_at(row.lease_until),
            draining=bool(row.draining),
            queues=tuple(json.loads(row.queues)),
            workflows=tuple(json.loads(row.workflows)),
            concurrency=row.concurrency,
            held=row.held,
            seems_dead=seems_dead,
        )


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else _at(seconds)
