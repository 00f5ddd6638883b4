"""The verbs: everything that can be written to a store.

A verb is a small immutable value. `Store.commit` takes any mixture of them, applies them in order in one
transaction, and returns one outcome a verb: its result, or a `Refused`. A refused verb has changed nothing and
does not disturb its neighbours. A verb may be committed again under the same ids when it is not known whether it
was (its contract says what a repeat does).

**Fenced** verbs carry `run` (the run's number in the store) and `fence`. They are refused with `FENCE` unless the run
still has that fence; the comparison is part of the statement that writes. Fences come from one counter of the store and
only grow, over all runs and over pruning; a fence that was given up is stored as its negative, which no life has.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from outlast.store.rows import RunRow

FENCE = "fence"
UNKNOWN = "unknown"
STATUS = "status"
VERSION = "version"
WORKER = "worker"


class Refused(NamedTuple):
    """A verb that was not carried out. `why` is one of the constants of this module."""

    why: str
    detail: str = ""


class Submit(NamedTuple):
    """Insert a run. With `worker` it is owned by that worker at once, under a fence of its own.

    Result: `Submitted(row, new)`. An id that exists is not touched: its row is returned with new=False. A repeat with the
    same token is new=True again while the worker still holds it, so the outcome of an unknown commit can be found out
    by committing again. Refused with WORKER if the worker is not enlisted.
    """

    id: str
    workflow: str
    args: str
    token: str
    seed: str
    queue: str = "default"
    priority: int = 0
    delay: float = 0.0
    timeout: float | None = None
    parent: str | None = None
    worker: str | None = None


class Submitted(NamedTuple):
    row: RunRow
    new: bool


class Claim(NamedTuple):
    """Give claimable runs to a worker: queued or waiting, due, and owned by nobody.

    With `ids`, just these, due or not; otherwise by queue and workflow: highest priority first, interrupted before new,
    older before younger. Each gets a new fence. Refused with WORKER if the worker is not enlisted.
    Result: list[RunRow]. A repeat with the same token returns the same runs while this worker holds them.
    """

    worker: str
    token: str
    ids: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    limit: int = 1


class Record(NamedTuple):
    """Append one entry to the journal. Fenced. Result: None.

    `seq` is given by the life, which is the journal's only writer while it holds the fence. A repeat (same
    run, seq and fence) writes nothing and is accepted, even if the fence is void by now: it is recorded.
    """

    run: int
    seq: int
    fence: int
    kind: str
    key: str
    at: float
    args: str | None = None
    value: str | None = None
    error: str | None = None
    seconds: float | None = None
    attempt: int | None = None
    asked: bool | None = None


class Wait(NamedTuple):
    """Say what a run waits for (names of messages), for those who look. Fenced. Result: None. A repeat is harmless."""

    run: int
    fence: int
    names: tuple[str, ...]


class Settle(NamedTuple):
    """End a run as done, failed or cancelled, or park it; the fence is void after. Fenced. Result: None.

    A repeat is accepted if it was this fence that settled the run.
    """

    run: int
    fence: int
    status: str
    value: str | None = None
    error: str | None = None
    reason: str | None = None
    failed_at: int | None = None


class Release(NamedTuple):
    """Give a run back, claimable from `due`; the fence is void after. Fenced. Result: None.

    `interrupted` raises it above new work of its priority and adds an `interruption` entry. A repeat is accepted while
    nobody has claimed the run since.
    """

    run: int
    fence: int
    reason: str
    delay: float = 0.0
    waiting: bool = False
    interrupted: bool = True


class Send(NamedTuple):
    """Put a message into a run's mailbox. Result: None; refused with UNKNOWN, or STATUS once the run has ended.

    The same name and message id again: nothing is written, whatever the value. A waiting run becomes claimable.
    """

    id: str
    name: str
    message: str
    value: str


class Cancel(NamedTuple):
    """Ask a run to end. Result: its status after. Refused with UNKNOWN, or STATUS once it has ended.

    A run that never started, or is parked, is cancelled here and now; any other must be claimed, so that its `finally`
    blocks execute. The first reason stays.
    """

    id: str
    why: str


class Retry(NamedTuple):
    """Queue a failed, cancelled or dead run again. Result: None. Refused with UNKNOWN or STATUS.

    A `retry` entry voids the journal from the entry that ended the run; everything before it is kept. A repeat with the
    same token is accepted and does nothing, even if the run has ended again since.
    """

    id: str
    token: str


class Resume(NamedTuple):
    """Queue a parked run again, with a `resume` entry. Result: None. Refused with UNKNOWN or STATUS.

    A repeat with the same token is accepted and does nothing, even if the run was parked again since.
    """

    id: str
    token: str


class Enlist(NamedTuple):
    """Make a worker known, with a lease. Result: None. A repeat renews."""

    worker: str
    host: str
    pid: int
    lease: float


class Renew(NamedTuple):
    """Extend a worker's lease. Result: None. Refused with WORKER if it was swept: its runs are lost to it."""

    worker: str
    lease: float
    draining: bool = False


class Leave(NamedTuple):
    """Strike a worker off. Runs it still holds are swept as interrupted, not dead. Result: None."""

    worker: str


class Sweep(NamedTuple):
    """Queue the runs of dead workers again: a `death` entry each, fence void. Result: list of run ids."""


class Prune(NamedTuple):
    """Delete up to `limit` runs that ended before `before`, with journal and mailbox. Result: how many.

    A child stays as long as its parent has not ended.
    """

    before: float
    limit: int = 500


class Keep(NamedTuple):
    """Set fields of a session (None deletes one), and its expiry. Result: the new version.

    With `version`, refused with VERSION unless that is the current one (0: there is none yet). A repeat with the token
    of the last change is accepted and does nothing.
    """

    session: str
    token: str
    fields: dict[str, str | None]
    ttl: float | None = None
    version: int | None = None


class Forget(NamedTuple):
    """Delete a session. Result: None. A repeat is harmless."""

    session: str


Verb: TypeAlias = (
    Submit
    | Claim
    | Record
    | Wait
    | Settle
    | Release
    | Send
    | Cancel
    | Retry
    | Resume
    | Enlist
    | Renew
    | Leave
    | Sweep
    | Prune
    | Keep
    | Forget
)

LOUD = (Submit, Settle, Release, Send, Cancel, Retry, Resume, Leave, Sweep)
"""Verbs that somebody else may be waiting for: a commit with one of them rings the bell."""

LOUD_AT_HOME = (Send, Cancel, Retry, Resume, Release, Sweep)
"""Those that this process's own runs may wait for. What it settles itself it knows."""
