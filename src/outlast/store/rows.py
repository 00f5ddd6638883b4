"""What a store holds, as it is read back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

Status = Literal["queued", "running", "waiting", "parked", "done", "failed", "cancelled", "dead"]

ENDED: frozenset[str] = frozenset({"done", "failed", "cancelled", "dead"})

DELAYED = "delayed"
"""In a RunQuery, next to the statuses: the runs that are queued and not due yet. Their status is "queued"."""

NEVER = 1e12
"""A due time that does not come by itself: the run waits for a message."""


class Entry(NamedTuple):
    """One line of a journal. See docs/architecture.md for the kinds."""

    seq: int
    """Its number in the journal, from 1."""
    kind: str
    """What it is: "step", "attempt", "intent", "death", …"""
    key: str
    """The place in the run that it is about, like "research#1"; empty if it is about the run."""
    at: float
    """When it was recorded, by the store's clock: seconds since the epoch."""
    args: str | None = None
    """What it was called with, as text: of a step the JSON of its arguments."""
    value: str | None = None
    """What came of it, as JSON."""
    error: str | None = None
    """The exception that it ended with, as JSON."""
    seconds: float | None = None
    """How long it took."""
    attempt: int | None = None
    """Which attempt it was, from 1."""
    asked: bool | None = None
    """Whether the step had been asked to stop before it ended."""
    cost: str | None = None
    """What it has cost: a JSON object of numbers."""
    fence: int = 0
    """Of the life that wrote it. What the store wrote by itself has the negative of the run's last fence, which is void from then on (0: it had
    none yet). So in one journal abs(fence) never falls, and after -n nothing is written under n: else a stale writer got in."""


SUSPECT_DEATHS = 2
"""After how many deaths in a row without a new entry a run is a suspect. Not after one: far more workers are killed by what is around them
than by what they execute, and then everything that they held would have to go on one by one."""


FLEET_DEATHS_MAX = 1_000
"""How many rows are kept of the deaths of workers, the newest: see `Sweep`."""
FLEET_SECONDS_MIN = 60.0
FLEET_SECONDS = 3600.0
"""Seconds of the past, at least and at most, in which other deaths are weighed against those of a run."""
ATTEMPTS_FACTOR_MAX = 4
"""At this many times `attempts_max` deaths in a row a run is condemned whatever happens to the fleet."""


def deaths_allowed(attempts_max: int, others: int, workers: int) -> int:
    """Return the number of deaths in a row at which a run is condemned.

    `others` is how many of `workers` workers died of something else in the same period.
    """
    extra = attempts_max * others // max(1, workers)
    return attempts_max + min(extra, attempts_max * (ATTEMPTS_FACTOR_MAX - 1))


class RunRow(NamedTuple):
    pk: int
    id: str
    workflow: str
    args: str
    queue: str
    priority: int
    status: str
    fence: int
    worker: str | None
    token: str | None
    seed: str
    parent: str | None
    created: float
    started: float | None
    due: float
    timeout: float | None
    deadline: float | None
    ended: float | None
    interrupted: float | None
    deaths: int
    interruptions: int
    waits: str
    cancel: str | None
    reason: str | None
    failed_at: int | None
    value: str | None
    error: str | None
    lives: int
    """How often it was claimed. A run in its first life has no journal yet."""
    ready: int
    """0: held, ended, parked, or due later. 1: claimable. 2: claimable, and a suspect."""
    mark: int
    """The seq of the last death or interruption: what has come since is progress."""
    deaths_in_a_row: int
    interruptions_in_a_row: int
    failures: int
    attempts_max: int
    interruptions_max: int
    undoing: str | None
    """How it ends once it is undone: a verdict, see `Undo`. None: it is not being undone."""
    abandon_after: float | None
    """For how many seconds it may be claimable without being taken, once it has begun."""

    @property
    def is_suspect(self) -> bool:
        """It may be what kills its workers: it executes alone until it has recorded something."""
        return self.deaths_in_a_row >= SUSPECT_DEATHS

    def is_delayed(self, now: float) -> bool:
        """Return whether the run is queued and not due yet: nobody can claim it, so it is no load."""
        return self.status == "queued" and self.ready == 0 and self.due > now


class Message(NamedTuple):
    """One message of a run's mailbox; `number` counts from 1 and is what a receive records."""

    number: int
    name: str
    id: str
    value: str
    at: float


class WorkerRow(NamedTuple):
    id: str
    host: str
    pid: int
    started: float
    lease_until: float
    draining: int
    lease: float
    renewed: float
    queues: str
    """What it claims from, as a JSON list, like `workflows`; an empty list if it claims nothing."""
    workflows: str
    concurrency: int
    asked: str | None
    """Why somebody wants it to drain."""
    held: int
    """How many runs and items it has."""


class DrainRow(NamedTuple):
    """The report of a worker's drain."""

    worker: str
    host: str
    pid: int
    reason: str
    began: float
    ended: float | None
    """None: it goes on, or ended without a report and was not swept yet."""
    held: int
    """How many runs and items it had when it began, after what had not begun was given back."""
    report: str | None
    """JSON."""
    recoveries: tuple[float, ...]
    """For each run that it left interrupted and that was claimed since: how many seconds that took, from its release, or, where the drain was cut
    short, from when the worker was last seen. Ascending."""


class Claimable(NamedTuple):
    """What there is to claim for somebody who knows certain queues and workflows."""

    ready: bool
    suspect: bool
    next_due: float | None
    """When the next run that is not ready comes due, of these queues."""
    overdue: bool
    """Something has come due, of whatever queue, and is not made ready yet: the next claim does that."""
    unknown: tuple[str, ...]
    """Workflows with ready runs in these queues that it does not know. An EACH is none: nobody is expected to."""


class QueueRow(NamedTuple):
    name: str
    queued: int
    """Those in this status: `ready` and `delayed`."""
    running: int
    waiting: int
    parked: int
    dead: int
    oldest: float | None
    """When the oldest queued run that is due was submitted."""
    submitted: int
    """In the last minute, as `ended`."""
    ended: int
    depth_max: int | None
    concurrency_max: int | None
    returned: int = 0
    """Queued, after an interruption or a death; also those that are due later."""
    returned_since: float | None = None
    """Since when the one that has waited longest of these could have been claimed: the earliest due time that has come. (`interrupted` tells less:
    it is the time of the first of many.)"""
    undoing: int = 0
    """Being undone: queued, running or waiting."""
    stuck: int = 0
    """Parked while being undone."""
    delayed: int = 0
    """Queued, and not due yet: submitted with a delay, or given back with one."""

    @property
    def ready(self) -> int:
        """Queued and due: what workers could take now."""
        return self.queued - self.delayed


class SessionRow(NamedTuple):
    id: str
    version: int
    updated: float
    expires: float | None
    fields: dict[str, str]
    """Those with a value, sorted by name."""
    lists: dict[str, int] = {}  # noqa: RUF012 - never changed
    """Those that are lists, and how many items each has; sorted by name."""


def sessions_of(found: Iterable[Sequence[Any]]) -> list[SessionRow]:
    """From one row a field, in order: (id, version, updated, expires, field, value, how many items)."""
    sessions = []
    for head, rows in groupby(found, lambda row: row[:4]):
        fields: dict[str, str] = {}
        lists: dict[str, int] = {}
        for *_, field, value, count in rows:
            if count is not None:
                lists[field] = count
            elif field is not None:
                fields[field] = value
        sessions.append(SessionRow._make((*head, fields, lists)))
    return sessions


class SessionQuery(NamedTuple):
    """Which sessions to list: those changed last first, of equal ones the greater id."""

    space: str = "session"
    prefix: str = ""
    limit: int = 100
    before: tuple[float, str] | None = None
    """The page after the session with this `updated` and id."""


class RunQuery(NamedTuple):
    """Which runs to list, newest first. Empty means any."""

    statuses: tuple[str, ...] = ()
    """Also `DELAYED`, for a part of those that are queued."""
    workflow: str | None = None
    queue: str | None = None
    parent: str | None = None
    waiting_for: str | None = None
    created_before: float | None = None
    created_after: float | None = None
    ended_after: float | None = None
    """Those that have ended, at that time or later."""
    items: bool | None = None
    """Plain work items: only them, or none of them."""
    undoing: bool | None = None
    """Those that are being undone: only them, or none of them."""
    limit: int = 100
    before_pk: int | None = None
    """The page after the run with this pk."""
