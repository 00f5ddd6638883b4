"""Define the rows that a store returns, and the queries that select them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from outlast.codec.rates import Rate

Status = Literal["queued", "running", "waiting", "parked", "done", "failed", "cancelled", "dead"]

EntryKind = Literal[
    "step", "attempt", "inner", "fired", "message", "child", "session", "publish", "items", "done",
    "intent", "verify", "compensation", "undoing", "cancel", "death", "interruption", "failure",
    "retry", "resume", "decision",
]  # fmt: skip
"""The kinds of journal entries. See docs/architecture-execution.md."""

ENDED: frozenset[str] = frozenset({"done", "failed", "cancelled", "dead"})

DELAYED = "delayed"
"""An extra status for a RunQuery: the runs that are queued but not due yet. Their status is
"queued".
"""

NEW_HELD_BACK = -3
"""`RunRow.ready` of a run that has not started and waits for its key's turn."""

TURN_STEP = 1e-6
"""By how many seconds the next run of a key goes behind the one that was claimed just now, at
least.
"""

NEVER = 1e12
"""A due time that never comes: the run waits for a message."""


class Entry(NamedTuple):
    """One entry of a journal. See docs/architecture-execution.md for the kinds."""

    seq: int
    """Its number in the journal, starting at 1."""
    kind: EntryKind
    """"step", "attempt", "intent", "death", …"""
    key: str
    """The call site it belongs to, like "research#1". Empty if it is about the run."""
    at: float
    """When it was recorded, in seconds since the epoch by the store's clock."""
    args: str | None = None
    """The arguments as text: for a step, the JSON of its arguments."""
    value: str | None = None
    """The result, as JSON."""
    error: str | None = None
    """The exception it ended with, as JSON."""
    seconds: float | None = None
    """How long it took."""
    attempt: int | None = None
    """The number of the attempt, starting at 1."""
    asked: bool | None = None
    """Whether the step had been asked to stop before it ended."""
    cost: str | None = None
    """Its cost: a JSON object of numbers."""
    fence: int = 0
    """The fence of the execution that wrote it. An entry written by the store itself has the
    negative of the run's last fence, which is void from then on (0: the run had no fence yet). So
    abs(fence) never decreases within a journal, and nothing is written under n after -n. Otherwise
    a stale writer got in.
    """


SUSPECT_DEATHS = 2
"""After how many deaths in a row without a new entry a run is a suspect. One is not enough: far
more workers are killed by their surroundings than by what they execute, and then everything they
held would have to execute one by one.
"""


FLEET_DEATHS_MAX = 1_000
"""How many deaths of workers are kept on record. The oldest are deleted. See `Sweep`."""
FLEET_SECONDS_MIN = 60.0
FLEET_SECONDS = 3600.0
"""How many seconds back, at least and at most, other deaths are weighed against those of a run."""
ATTEMPTS_FACTOR_MAX = 4
"""A run with this many times `attempts_max` deaths in a row is condemned, whatever happens to the
fleet.
"""


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
    status: Status
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
    """How often it was claimed. A run in its first execution has no journal yet."""
    ready: int
    """0: held, ended, parked, or due later. 1: claimable. 2: claimable and a suspect.

    Negative: due, but other runs of its `key` go first, or the key's limits hold it back. -1: it
    has started before. -2: it is a suspect. -3: it is new.
    """
    mark: int
    """The seq of the last death or interruption. Any later entry is progress."""
    deaths_in_a_row: int
    interruptions_in_a_row: int
    failures: int
    attempts_max: int
    interruptions_max: int
    undoing: str | None
    """How it ends after its compensation: a verdict, see `Undo`. None if it is not compensated."""
    abandon_after: float | None
    """How many seconds it may stay claimable without being claimed, once it has started."""
    by: str | None = None
    """Who submitted it, if its submission said so. Its children have the same."""
    key: str | None = None
    """Whose limits it counts against: see `SetQueueLimits`. Its children have none."""
    turn: float | None = None
    """When it came to be the first of its key that may be claimed. A claim orders runs with a key
    by this time, so that keys take turns. None without a key, and while other runs go first.
    """

    @property
    def claimable_since(self) -> float:
        """Return when a ready run became claimable."""
        return self.due if self.turn is None else self.turn

    @property
    def is_suspect(self) -> bool:
        """Return whether the run may be what kills its workers.

        A suspect executes in isolation until it has recorded something.
        """
        return self.deaths_in_a_row >= SUSPECT_DEATHS

    def is_delayed(self, now: float) -> bool:
        """Return whether the run is queued but not due yet: it cannot be claimed and is no load."""
        return self.status == "queued" and self.ready == 0 and self.due > now


class ExecutionRow(NamedTuple):
    """One execution of a run: a worker held it under one fence, from a claim to its end."""

    fence: int
    worker: str
    host: str
    pid: int
    began: float
    """When the worker claimed the run, by the store's clock, like `ended`."""
    ended: float | None
    """When the fence became void. None: the worker holds the run."""
    status: str
    """The status in which the execution left the run, or "running".

    It is "queued" after a death, an interruption or another release, and "undoing" if the
    execution began the compensation.
    """
    reason: str | None
    """The reason of a release. None after a retry or a resume, which clear it."""


class Message(NamedTuple):
    """One message in a run's mailbox. `number` starts at 1; a receive records it."""

    number: int
    name: str
    id: str
    value: str
    at: float
    by: str | None = None
    """Who sent it, if the sender said so."""


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
    """The queues it claims from, as a JSON list, like `workflows`. An empty list if it claims
    nothing.
    """
    workflows: str
    concurrency: int
    asked: str | None
    """The reason of a request that it drain."""
    held: int
    """How many runs and items it holds."""


class DrainRow(NamedTuple):
    """The report of a worker's drain."""

    worker: str
    host: str
    pid: int
    reason: str
    began: float
    ended: float | None
    """None: the drain is in progress, or it ended without a report and was not swept yet."""
    held: int
    """How many runs and items it held at the start, after releasing those that had not started."""
    report: str | None
    """JSON."""
    recoveries: tuple[float, ...]
    """For each run that it left interrupted and that was claimed since: the seconds from its
    release to that claim. If the drain was cut short, they count from when the worker was last
    seen. Ascending.
    """


class Claimable(NamedTuple):
    """What a worker that knows certain queues and workflows can claim."""

    ready: bool
    suspect: bool
    next_due: float | None
    """When the next run in these queues that is not ready comes due."""
    overdue: bool
    """A run of any queue has come due but is not marked ready yet. The next claim does that."""
    unknown: tuple[str, ...]
    """Workflows with ready runs in these queues that the worker does not know. EACH is never among
    them: no worker is expected to know it.
    """


class QueueRow(NamedTuple):
    name: str
    queued: int
    """All runs in this status, both `ready` and `delayed`."""
    running: int
    waiting: int
    parked: int
    dead: int
    oldest: float | None
    """When the oldest run that is queued and due was submitted."""
    submitted: int
    """In the last minute, like `ended`."""
    ended: int
    depth_max: int | None
    concurrency_max: int | None
    returned: int = 0
    """Queued after an interruption or a death, including those that are due later."""
    returned_since: float | None = None
    """Since when the longest-waiting of these could have been claimed: the earliest due time that
    has passed. `interrupted` says less, because it is the time of the first of many interruptions.
    """
    undoing: int = 0
    """Being compensated, and queued, running or waiting."""
    stuck: int = 0
    """Parked during compensation."""
    delayed: int = 0
    """Queued but not due yet: submitted or released with a delay."""
    key_concurrency_max: int | None = None
    key_starts_max: int | None = None
    """How many runs of one key may start in any `key_period` seconds."""
    key_period: float | None = None
    paused: bool = False

    @property
    def gives_nothing(self) -> bool:
        """Return whether workers claim nothing from the queue, by a pause or a limit of 0."""
        return self.paused or self.concurrency_max == 0

    @property
    def ready(self) -> int:
        """Return how many runs are queued and due. Workers could take these now."""
        return self.queued - self.delayed

    @property
    def key_rate(self) -> str | None:
        """Return how many runs of a key may start per period, such as "100/1m"."""
        if self.key_starts_max is None or self.key_period is None:
            return None
        return str(Rate(self.key_starts_max, self.key_period))


class EndCount(NamedTuple):
    """How many of the runs that ended lately have this status, and what they survived."""

    status: Status
    runs: int
    deaths: int
    interruptions: int
    first: float
    """When the earliest of them ended."""


class RunQuery(NamedTuple):
    """Which runs to list, newest first. An empty condition matches any run."""

    statuses: tuple[str, ...] = ()
    """May include `DELAYED`, which selects a part of the queued runs."""
    workflow: str | None = None
    queue: str | None = None
    prefix: str | None = None
    """What the run's id starts with."""
    parent: str | None = None
    waiting_for: str | None = None
    created_before: float | None = None
    created_after: float | None = None
    ended_after: float | None = None
    """Only runs that ended at this time or later."""
    items: bool | None = None
    """Plain work items: True for only them, False for none of them."""
    undoing: bool | None = None
    """Runs being compensated: True for only them, False for none of them."""
    limit: int = 100
    before_pk: int | None = None
    """Start after the run with this pk."""
    by: str | None = None
    """Who submitted it."""
    key: str | None = None
    """Whose limits it counts against. Runs without a key have none."""
    worker: str | None = None
    """The worker that holds it."""
    awaits_message: bool | None = None
    """Runs that have not ended and wait for a message: True for only them, False for none."""
