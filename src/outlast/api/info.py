"""Runs, queues and workers as a program sees them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from outlast.codec.exceptions import describe_error
from outlast.execution.effect_log import UNDO, EffectLog, EffectRecord
from outlast.store.fleet import names_of
from outlast.store.rows import NEVER, QueueRow, RunRow, WorkerRow


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run, as it stands in the store; it is not kept up to date."""

    id: str
    workflow: str
    status: str
    """`queued` (delayed, if `due` is in the future), `running`, `waiting` or `parked`; when it has ended `done`, `failed`, `cancelled` or `dead`."""
    queue: str
    priority: int
    created: datetime
    started: datetime | None
    """When it was first claimed."""
    ended: datetime | None
    due: datetime | None
    """From when on it can be claimed, while it is queued or waiting; None: not by itself."""
    worker: str | None
    """The id of the worker that has it."""
    fence: int
    """The number of its last claim."""
    deaths: int
    """How many processes died while they had it, since it was last retried, resumed or decided."""
    interruptions: int
    """How often it was given back in order: a drain, a close."""
    parent: str | None
    """The run that started it as a child."""
    waiting_for: tuple[str, ...]
    """The names of the messages that it waits for."""
    cancelling: str | None
    """Why it is to be cancelled, as long as it has not ended."""
    reason: str | None
    """Why it is parked, dead or cancelled, or was last given back."""
    error: str | None
    """The error that ended it, in a line."""
    undoing: bool
    """What it has done is being undone."""

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
            due=_time(row.due)
            if row.status in ("queued", "waiting") and not _is_never(row.due)
            else None,
            worker=row.worker,
            fence=abs(row.fence) if isinstance(row.fence, int) else 0,
            deaths=row.deaths,
            interruptions=row.interruptions,
            parent=row.parent,
            waiting_for=tuple(name for name in row.waits.split("\n") if name),
            cancelling=row.cancel if row.ended is None else None,
            reason=row.reason,
            error=describe_error(row.error) if row.error else None,
            undoing=row.undoing is not None,
        )


@dataclass(frozen=True, slots=True)
class EffectInfo:
    """An effect of a run: what was meant, and what came of it."""

    place: str
    """Where in the run: what `decide` takes."""
    effect: str
    """Its name."""
    state: str
    """"open" (nobody knows yet), "happened", "did not happen", or "undone"; "registered" for what `compensate_with` will call."""
    key: str
    """Its idempotency key."""
    arguments: str
    """As JSON."""
    result: str | None
    """As JSON."""
    error: str | None
    since: datetime | None
    """When it was last about to be done."""
    known: datetime | None
    """When it became known what came of it."""
    intent: int
    """The number of its last intent, for `decide`; 0 if there was none."""
    acts: int
    """How often it was about to be done."""
    compensation: str | None
    """The effect that undoes it."""
    units: tuple[str, ...]
    """The names of the units that it was called in, outermost first."""
    undo_error: str | None
    """Why it could not be undone so far."""
    undo: EffectInfo | None
    """Its compensation, an effect like any other, once that has begun."""

    @classmethod
    def of(cls, effect_log: EffectLog) -> list[EffectInfo]:
        return [
            cls._of(one, effect_log.get(UNDO + one.place))
            for one in reversed(list(effect_log))
            if one.kind == "compensation" or (one.kind == "intent" and one.intent)
        ]

    @classmethod
    def _of(cls, one: EffectRecord, undo: EffectRecord | None) -> EffectInfo:
        if one.undone is not None:
            state = "undone"
        elif one.kind == "compensation":
            state = "registered"
        elif one.open or one.left_open:
            state = "open"
        else:
            state = "happened" if one.happened else "did not happen"
        closed = one.closed
        error = (closed.error if closed is not None else None) or one.error
        failed = undo.error if undo is not None and not undo.happened else None
        return cls(
            place=one.place,
            effect=one.effect,
            state=state,
            key=one.key,
            arguments=one.arguments,
            result=one.value,
            error=describe_error(error) if error else None,
            since=_time(one.at or (closed.at if closed is not None else None)),
            known=_time(closed.at) if closed is not None and one.intent else None,
            intent=one.intent,
            acts=one.acts,
            compensation=one.compensation if one.kind == "intent" else one.effect,
            units=one.units,
            undo_error=describe_error(failed) if failed else None,
            undo=cls._of(undo, None) if undo is not None and undo.intent else None,
        )


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue, as it stands in the store; it is not kept up to date."""

    name: str
    queued: int
    """All that are queued: `ready` and `delayed`. The queue's `depth_max` limits them together."""
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
    returned: int = 0
    """Queued, after an interruption or a death."""
    returned_since: datetime | None = None
    """Since when the one of these that has waited longest is due."""
    undoing: int = 0
    """Being undone: queued, running or waiting."""
    stuck: int = 0
    """Parked while being undone."""
    delayed: int = 0
    """Queued, and not due yet."""

    @property
    def ready(self) -> int:
        """Queued and due: what workers could take now."""
        return self.queued - self.delayed

    @classmethod
    def of(cls, row: QueueRow) -> QueueInfo:
        counts = (row.queued, row.running, row.waiting, row.parked, row.dead)
        lately = (row.submitted, row.ended)
        limits = (row.depth_max, row.concurrency_max)
        since, oldest = _time(row.returned_since), _time(row.oldest)
        rest = (row.undoing, row.stuck, row.delayed)
        return cls(row.name, *counts, oldest, *lately, *limits, row.returned, since, *rest)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker, as it stands in the store; it is not kept up to date."""

    id: str
    host: str
    pid: int
    started: datetime
    renewed: datetime
    """When it last renewed its lease."""
    lease_until: datetime
    draining: bool
    """It takes nothing more, and is about to end."""
    queues: tuple[str, ...]
    """What it claims from; none if it claims nothing."""
    workflows: tuple[str, ...]
    """The names of those it knows."""
    concurrency: int
    """How many runs and items it takes at once."""
    held: int
    """How many runs and items it has."""
    seems_dead: bool
    """Nothing shows that it lives: its runs will be taken over."""

    @classmethod
    def of(cls, row: WorkerRow, *, seems_dead: bool) -> WorkerInfo:
        return cls(
            id=str(row.id),
            host=str(row.host),
            pid=row.pid,
            started=_at(row.started),
            renewed=_at(row.renewed),
            lease_until=_at(row.lease_until),
            draining=bool(row.draining),
            queues=tuple(names_of(row.queues)),
            workflows=tuple(names_of(row.workflows)),
            concurrency=row.concurrency,
            held=row.held,
            seems_dead=seems_dead,
        )


def _at(seconds: float) -> datetime:
    """What no calendar has is its end, or its beginning; and so is what is no number: a file may have anything there."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        is_late = isinstance(seconds, (int, float)) and seconds > 0
        return datetime.max.replace(tzinfo=UTC) if is_late else datetime.min.replace(tzinfo=UTC)


def _is_never(seconds: float) -> bool:
    return isinstance(seconds, (int, float)) and seconds >= NEVER


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else _at(seconds)
