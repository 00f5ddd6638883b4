"""Define what a program sees of runs, effects, queues and workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from outlast.codec.documents import value_of
from outlast.codec.exceptions import describe_error
from outlast.errors.reasons import of_run
from outlast.execution.effects_from_journal import UNDO, EffectLog, EffectRecord
from outlast.store.fleet import names_of
from outlast.store.rows import NEVER, QueueRow, RunRow, WorkerRow


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A snapshot of a run in the store. It is not kept up to date."""

    id: str
    workflow: str
    status: str
    """`queued` (delayed, if `due` is in the future), `running`, `waiting` or `parked`; after its
    end `done`, `failed`, `cancelled` or `dead`.
    """
    queue: str
    priority: int
    created: datetime
    started: datetime | None
    """When it was first claimed."""
    ended: datetime | None
    due: datetime | None
    """When it becomes claimable, while it is queued or waiting. None: not at a known time."""
    worker: str | None
    """The id of the worker that holds it."""
    fence: int
    """The number of its last claim."""
    deaths: int
    """The number of processes that died holding it since it was last retried, resumed or decided.
    """
    interruptions: int
    """How often it was released in an orderly way, by a drain or a close."""
    parent: str | None
    """The run that started it as a child."""
    waiting_for: tuple[str, ...]
    """The names of the messages that it waits for."""
    cancelling: str | None
    """Why it is being cancelled, until it has ended."""
    reason: str | None
    """Why it is parked, dead or cancelled, or was last released."""
    error: str | None
    """The error that ended it, in one line."""
    undoing: bool
    """Whether it is being compensated."""
    by: str | None = None
    """Who submitted it, if its submission said so."""
    key: str | None = None
    """Whose limits it counts against, such as a customer."""

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
            by=row.by,
            key=row.key,
        )


@dataclass(frozen=True, slots=True)
class EffectInfo:
    """An effect of a run: its intent and its outcome."""

    place: str
    """Its call site in the run. `decide` takes it."""
    effect: str
    """Its name."""
    state: str
    """"open" (outcome unknown), "happened", "did not happen" or "undone"; "registered" for an
    effect that `compensate_with` will call.
    """
    key: str
    """Its idempotency key."""
    arguments: str
    """As JSON."""
    result: str | None
    """As JSON."""
    error: str | None
    since: datetime | None
    """When its last intent was recorded."""
    known: datetime | None
    """When its outcome became known."""
    intent: int
    """The number of its last intent, for `decide`; 0 if there was none."""
    acts: int
    """The number of intents that it may have acted on."""
    compensation: str | None
    """The effect that compensates it."""
    units: tuple[str, ...]
    """The names of the units that it was called in, outermost first."""
    undo_error: str | None
    """Why its compensation has failed so far."""
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
    """A snapshot of a queue in the store. It is not kept up to date."""

    name: str
    queued: int
    """All queued runs and items: `ready` and `delayed`.

    The queue's `depth_max` limits them together.
    """
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
    """Queued after an interruption or a death."""
    returned_since: datetime | None = None
    """When the first of the `returned` runs became due."""
    undoing: int = 0
    """Being compensated: queued, running or waiting."""
    stuck: int = 0
    """Parked during compensation."""
    delayed: int = 0
    """Queued and not due yet."""
    per_key_concurrency: int | None = None
    """How many runs of one key may execute at once."""
    per_key_rate: str | None = None
    """How many runs of one key may start per period, such as "100/1m"."""
    paused: bool = False

    @property
    def ready(self) -> int:
        """Return how many are queued and due, so that workers could claim them now."""
        return self.queued - self.delayed

    @classmethod
    def of(cls, row: QueueRow) -> QueueInfo:
        counts = (row.queued, row.running, row.waiting, row.parked, row.dead)
        lately = (row.submitted, row.ended)
        limits = (row.depth_max, row.concurrency_max)
        since, oldest = _time(row.returned_since), _time(row.oldest)
        rest = (row.undoing, row.stuck, row.delayed)
        info = cls(row.name, *counts, oldest, *lately, *limits, row.returned, since, *rest)
        return replace(
            info,
            per_key_concurrency=row.key_concurrency_max,
            per_key_rate=row.key_rate,
            paused=row.paused,
        )


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A snapshot of a worker in the store. It is not kept up to date."""

    id: str
    host: str
    pid: int
    started: datetime
    renewed: datetime
    """When it last renewed its lease."""
    lease_until: datetime
    draining: bool
    """Whether it claims nothing more and is about to end."""
    queues: tuple[str, ...]
    """The queues that it claims from; empty if it claims nothing."""
    workflows: tuple[str, ...]
    """The names of the workflows that it knows."""
    concurrency: int
    """How many runs and items it executes at once."""
    held: int
    """The number of runs and items that it holds."""
    seems_dead: bool
    """Whether nothing shows that it is alive. Its runs will be taken over."""

    @classmethod
    def of(cls, row: WorkerRow, *, seems_dead: bool) -> WorkerInfo:
        return cls(
            id=str(row.id),
            host=str(row.host),
            pid=row.pid,
            started=moment(row.started),
            renewed=moment(row.renewed),
            lease_until=moment(row.lease_until),
            draining=bool(row.draining),
            queues=tuple(names_of(row.queues)),
            workflows=tuple(names_of(row.workflows)),
            concurrency=row.concurrency,
            held=row.held,
            seems_dead=seems_dead,
        )


def explained(row: RunRow) -> str | None:
    """Return the `outlast explain` name for why a run failed, is parked or is a dead letter."""
    if row.status == "failed":
        return _error_explained(row.error) or "RunFailed"
    return of_run(row.status, row.reason)


def _error_explained(text: str | None) -> str | None:
    """Return the `outlast explain` name of a recorded error, or None if it is not Outlast's own."""
    from outlast.explain.texts import find

    recorded = value_of(text)
    kind = str(recorded.get("type", "")) if isinstance(recorded, dict) else ""
    found = find(kind) if kind.startswith("outlast.") else None
    return None if found is None else found.name


def moment(seconds: float) -> datetime:
    """Convert a timestamp, and limit it to what a datetime can represent.

    A damaged file may hold anything: a value that is not a number becomes the earliest datetime.
    """
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        is_late = isinstance(seconds, (int, float)) and seconds > 0
        return datetime.max.replace(tzinfo=UTC) if is_late else datetime.min.replace(tzinfo=UTC)


def _is_never(seconds: float) -> bool:
    return isinstance(seconds, (int, float)) and seconds >= NEVER


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)
