"""What a store holds, as it is read back."""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["queued", "running", "waiting", "parked", "done", "failed", "cancelled", "dead"]

ENDED: frozenset[str] = frozenset({"done", "failed", "cancelled", "dead"})

NEVER = 1e12
"""A due time that does not come by itself: the run waits for a message."""


class Entry(NamedTuple):
    """One line of a journal. See docs/architecture.md for the kinds."""

    seq: int
    kind: str
    key: str
    at: float
    args: str | None = None
    value: str | None = None
    error: str | None = None
    seconds: float | None = None
    attempt: int | None = None
    asked: bool | None = None
    """Whether the step had been asked to stop before it ended."""


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


class SessionRow(NamedTuple):
    id: str
    version: int
    updated: float
    expires: float | None
    fields: dict[str, str]


class RunQuery(NamedTuple):
    """Which runs to list, newest first. Empty means any."""

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    queue: str | None = None
    parent: str | None = None
    waiting_for: str | None = None
    created_before: float | None = None
    created_after: float | None = None
    limit: int = 100
    before_pk: int | None = None
    """The page after the run with this pk."""
