"""Define the commands: everything that can be written to a store.

A command is a small immutable value. `Store.commit` takes any mixture of them, applies them in
order in one transaction, and returns one outcome per command: its result, or a `Refused`. A refused
command has changed nothing and does not affect the others in the batch. A command may be committed
again under the same ids when the outcome of the first commit is unknown. Its contract says what a
repeat does.

**Fenced** commands carry `run` (the run's number in the store) and `fence`. They are refused with
`FENCE` unless the run still has that fence. The comparison is part of the statement that writes.
Fences come from one counter per store and only grow, across all runs and across pruning. A void
fence is stored as its negative, which no execution ever holds.
"""

from __future__ import annotations

import json
from typing import NamedTuple, TypeAlias

from outlast.store.rows import NEVER, RunRow

FENCE = "fence"
UNKNOWN = "unknown"
STATUS = "status"
VERSION = "version"
WORKER = "worker"
DEPTH = "depth"
CONFLICT = "conflict"
DRAINING = "draining"
PARENT = "parent"
CANCEL = "cancel"

DRAINS_MAX = 1_000
"""How many drain reports are kept, with their recoveries. The oldest are deleted."""

DURATIONS_MAX = 200
"""How many durations are kept per workflow and step. The oldest are deleted."""

ITEM = ""
"""The workflow name of a plain work item, which has no workflow."""

EACH = "(each)"
"""The workflow name of a run that represents an `each`. The process that iterates over the items
has the code, so only a Claim that names it gets such a run.
"""


SESSION = "session"
CHECKPOINT = "checkpoint"
"""The spaces of sessions. The same id in two spaces is two sessions."""

TOKENS_MAX = 20
"""How many changes of a session are remembered to recognise repeats. The oldest are dropped."""

SESSION_MEMORY = 300.0
"""How many seconds a session stays in the store after it expired or was deleted, so that its tokens
still recognise repeats. A later repeat is a new change.
"""


class Refused(NamedTuple):
    """A command that was not applied. `why` is one of the constants of this module."""

    why: str
    detail: str = ""


class Submit(NamedTuple):
    """Insert a run. With `worker`, that worker owns it at once, under a new fence.

    Result: `Submitted(row, new)`. An existing id is not touched: its row is returned with
    new=False. A repeat with the same token returns new=True as long as the run is as this
    submission left it (queued, or held by the worker). So committing again reveals the outcome of
    an unknown commit.

    Refused with WORKER if the worker is not registered, and with DRAINING if it drains, whether the
    id exists or not, unless this is a repeat and the worker holds the run. A new run without a
    worker is refused with DEPTH, "depth/limit/needed", if its queue would have more than
    `depth_max` queued runs. The queue's own limit takes precedence if it has one.
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
    attempts_max: int = 5
    """Consecutive deaths without a new entry (for an item also failures) that make it a dead
    letter.
    """
    interruptions_max: int = 100
    """Consecutive interruptions without a new entry that make it a dead letter."""
    depth_max: int | None = None
    abandon_after: float | None = None
    """See `Claim`."""


class Submitted(NamedTuple):
    row: RunRow | None
    """None for a new run without a worker: there is nothing to know about it yet."""
    new: bool


class SubmitMany(NamedTuple):
    """Queue several runs without a worker, all or none. Result: list[Submitted], in their order.

    Refused as a whole with DEPTH if the new runs do not all fit into their queues. Refused with
    CONFLICT, and the id, if an id already exists (or occurs twice here) with another workflow or
    other arguments. A repeat finds its runs already there.
    """

    runs: tuple[Submit, ...]


class Claim(NamedTuple):
    """Give claimable runs to a worker: queued or waiting, due, and not held by any worker.

    With `ids`, claim exactly these runs if they are due, whatever their queue allows. Otherwise
    claim at most `limit` runs of these queues and workflows (empty: any but EACH). The order is:
    highest priority first, interrupted before new (older interruption first), earlier due time
    first. At most `returned` of them are interrupted runs. A queue with its own concurrency limit
    yields only as many as its running runs leave free. With `suspects` only suspects are claimed
    (see `Sweep`), otherwise none of them.

    A run that is not claimed by id is abandoned if it has started before and was claimable for more
    than its `abandon_after` seconds, while a worker of its queue that knows its workflow was alive
    and the store was awake (see `Sweep`). It is compensated from now on, as by `Undo`, with the
    verdict failed and `Abandoned` as its error.

    Each run gets a new fence. Refused with WORKER if the worker is not registered, and with
    DRAINING if it drains. Claiming a run that a draining worker left counts as a recovery of that
    drain.

    Result: list[RunRow], in the order above. A repeat with the same token returns the same runs
    while this worker holds them.
    """

    worker: str
    token: str
    ids: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    limit: int = 1
    returned: int | None = None
    suspects: bool = False


class Record(NamedTuple):
    """Append one entry to the journal. Fenced. Result: None.

    The run execution assigns `seq`: it is the journal's only writer while it holds the fence. A
    repeat (same run, seq and fence) writes nothing and is accepted even if the fence is void by
    now, because the entry is recorded.
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
    cost: str | None = None


class SaveProgress(NamedTuple):
    """Save the progress of an unfinished step over its previous one. Fenced. Result: None.

    A repeat is harmless. A command that arrives after one of a later attempt of the step under the
    same fence changes nothing. Settling the run deletes the progress, unless it parks the run.
    Saving counts as progress of the run under this fence.
    """

    run: int
    fence: int
    key: str
    attempt: int
    value: str


class SetWaiting(NamedTuple):
    """Set the names of the messages that a run waits for. Fenced. Result: None.

    The names are for readers of the store. A repeat is harmless.
    """

    run: int
    fence: int
    names: tuple[str, ...]


class Settle(NamedTuple):
    """End a run as done, failed or cancelled, or park it, and void the fence. Fenced. Result: None.

    A run that was being compensated no longer is, unless it is parked. A repeat is accepted if this
    fence settled the run.

    With `unless_cancelled`, a run with a request to cancel that is not being compensated is not
    parked: the command is refused with CANCEL and the reason of the request. The fence stays valid,
    and the run execution ends the run.
    """

    run: int
    fence: int
    status: str
    value: str | None = None
    error: str | None = None
    reason: str | None = None
    failed_at: int | None = None
    unless_cancelled: bool = False


class Release(NamedTuple):
    """Release a run, claimable after `delay`, and void the fence. Fenced. Result: its status after.

    - `interrupted` puts the run ahead of new work of its priority and adds an `interruption` entry.
      Too many in a row without a new entry make it a dead letter.
    - `failed` (for items) counts a failure instead, with a `failure` entry. Too many failures make
      it a dead letter.
    - `waiting` makes the run wait for messages named in `waits`, for the end of the runs in
      `children`, and until `due`. It is due at once if there is news for it: a message of these
      names after number `seen`, a request to cancel, or a child that has ended or does not exist.
      From then on such a message, request or end makes it due.

    A repeat is accepted while the run has not been claimed since.
    """

    run: int
    fence: int
    reason: str
    delay: float = 0.0
    waiting: bool = False
    interrupted: bool = True
    failed: bool = False
    due: float = NEVER
    waits: tuple[str, ...] = ()
    seen: int = 0
    children: tuple[str, ...] = ()


class Undo(NamedTuple):
    """Compensate a run before it ends, and void the fence. Fenced. Result: None.

    `verdict` is how the run ends afterwards, as built by `verdict(...)`. From now on the run is
    `undoing`: queued, due at once and ahead of new work, without a deadline or a request to cancel.
    It gets an `undoing` entry whose value is the verdict. This is not an interruption, and it
    resets the counts of consecutive deaths and interruptions.

    Refused with STATUS, "undoing", if the run is already being compensated. A repeat is accepted
    while the run has not been claimed since.
    """

    run: int
    fence: int
    verdict: str


def verdict(
    status: str,
    value: str | None = None,
    error: str | None = None,
    reason: str | None = None,
    failed_at: int | None = None,
) -> str:
    """Return as JSON how a run ends after its compensation. The parameters are as in `Settle`."""
    said = {
        "status": status,
        "value": value,
        "error": error,
        "reason": reason,
        "failed_at": failed_at,
    }
    return json.dumps(said)


class Ack(NamedTuple):
    """Mark an item as done. Fenced. Result: None.

    A repeat is accepted if this fence acked the item.
    """

    run: int
    fence: int
    queue: str


class Send(NamedTuple):
    """Put a message into a run's mailbox. Result: None.

    Refused with UNKNOWN if there is no such run, with STATUS once it has ended, and with STATUS,
    "item", for an item, which cannot receive messages. A repeat of the same name and message id
    writes nothing, whatever its value. A run that waits for the name becomes claimable. A new
    message is refused with DEPTH, and their number, if the run was already sent `messages_max`
    messages, including those it has received.
    """

    id: str
    name: str
    message: str
    value: str
    messages_max: int | None = None


class Cancel(NamedTuple):
    """Request that a run end. Result: its status after.

    Refused with UNKNOWN, or with STATUS once the run has ended. A run that never started, is parked
    or is a dead letter, and any unheld item, is cancelled at once. Any other run must be claimed so
    that its `finally` blocks execute. The first reason stays.

    A parked or dead run with an `intent` or `compensation` entry, or with children, is compensated
    first, as by `Undo`, and ends as cancelled. A run that is already being compensated and has not
    been settled is refused with STATUS, "undoing".
    """

    id: str
    why: str


class Retry(NamedTuple):
    """Queue a failed, cancelled or dead run again. Result: None. Refused with UNKNOWN or STATUS.

    A `retry` entry voids the journal from the entry that ended the run; everything before it is
    kept. A run that is being compensated may also be parked: its entry voids nothing, and its
    compensation continues. A repeat with the same token is accepted and does nothing, even if the
    run has ended again since.

    A child belongs to its parent. It is refused with PARENT, and the parent's status, if the parent
    has ended, is "undoing" or is "gone": no run would own what the child does. With `seen`, it is
    also refused with VERSION, and the seq of the parent's last entry, if that is not `seen`: the
    parent may have recorded the child's end. The compensation of a child continues in any case. An
    EACH is not checked: it does nothing until its parent asks for it.
    """

    id: str
    token: str
    seen: int | None = None


class Resume(NamedTuple):
    """Queue a parked run again, or an EACH that is done, with a `resume` entry. Result: None.

    Refused with UNKNOWN or STATUS. A compensation continues. A repeat with the same token is
    accepted and does nothing, even if the run was parked again since.
    """

    id: str
    token: str


class Decide(NamedTuple):
    """Queue a parked run again with a person's decision about one of its effects. Result: None.

    `decision` is a JSON object. The token is added to it, and it becomes a `decision` entry under
    `key`. With a `verdict` the run is compensated from then on, as by `Undo`.

    Refused with UNKNOWN. Refused with STATUS, and its status, if it is not parked. Refused with
    VERSION, and the seq of its last entry, if that is not `seen`: the person decided on an older
    state. A repeat with the same token is accepted and does nothing, even if the run was parked
    again since.
    """

    id: str
    key: str
    decision: str
    seen: int
    token: str
    verdict: str | None = None


class UndoChild(NamedTuple):
    """Compensate a child that is done, as by `Undo`, to end as cancelled. Result: its status after.

    Refused with UNKNOWN if `parent` has no such child. A child without an `intent` or
    `compensation` entry, and without children of its own, has nothing to compensate and stays
    "done". A child in any other status stays as it is, including one that is already being
    compensated. Its value is kept until it is settled again.

    With `unheld`, also compensate a child that has started, has not ended (or is a dead letter) and
    is unowned, whatever it has done. Its own code is not executed.
    """

    id: str
    parent: str
    why: str
    unheld: bool = False


class RegisterWorker(NamedTuple):
    """Register a worker, with a lease. Result: None.

    A repeat renews the lease and updates what the worker claims.
    """

    worker: str
    host: str
    pid: int
    lease: float
    queues: tuple[str, ...] = ()
    """The queues it claims from. Empty if it claims nothing."""
    workflows: tuple[str, ...] = ()
    concurrency: int = 0


class Renew(NamedTuple):
    """Extend a worker's lease. Result: None.

    Refused with WORKER if the worker was swept and has lost its runs. `draining` is permanent: a
    renewal without it does not revoke it. It opens no report; see `Drain`.
    """

    worker: str
    lease: float
    draining: bool = False


class DeregisterWorker(NamedTuple):
    """Deregister a worker. Result: None.

    Runs it still holds are released as interrupted, not dead; `seen` of their entries (see `Sweep`)
    is now. The report of its drain stays open, because only the worker knows that the drain has
    ended.
    """

    worker: str


class Sweep(NamedTuple):
    """Take the runs of dead workers away and void their fences. Result: `Swept`.

    **Dead workers.** A worker is dead if its lock is free and its heartbeat is old, or if its lease
    ran out while the store was awake. The store is awake if signs of life (RegisterWorker, Renew or
    Sweep, of any worker) came for as long as the worker's lease, without a gap of more than half
    the shortest lease. After an outage or a clock jump, every worker has a whole lease to renew.

    **Runs.** Each run of a dead worker gets a `death` entry and is released. It goes ahead of new
    work if it has recorded anything of its own under its fence (a step, an attempt, an inner step,
    a child, a session change), or if the worker also held its child. For any other run
    `deaths_in_a_row` grows. After the first death it goes ahead of new work, too. After the second
    (SUSPECT_DEATHS) it is a suspect. From then on the count grows only when it dies alone, that is
    when the worker held nothing else but the run's ancestors. With each such death it is due later,
    after `backoff` seconds, doubled each time. A death alone that brings the count to
    `attempts_max` or more makes it a dead letter.

    **Kill storms.** When other workers die too, a dead letter takes more deaths (`deaths_allowed`).
    The store records which workers died when, and which runs are charged for each death. Deaths of
    others are those on record since the run's first death in this row for which it is not charged,
    reaching at least FLEET_SECONDS_MIN and at most FLEET_SECONDS back. Deaths for which a single
    other run is charged count once for that run. Workers are the registered ones and those of this
    sweep, which are processed in the order of their ids. Workers that were draining, or that an
    outage cut off, are not on record.

    **Draining workers.** The runs of a worker that was draining get an `interruption` instead and
    are not charged. Its report, if it is still open or was never opened, is closed with what is
    known: {"cut_short": true, "left": ids of what was taken from it, "why": how it died, "seen": as
    in the entries}.

    **Entries.** Besides `why`, the JSON of an entry has `seen`, when the worker was last seen by
    the store's clock (never later than now), and `by`, the evidence. "lease": the lease ran out,
    and `seen` is the last renewal. "lock": the lock is free, and `seen` is the last heartbeat;
    where the store knows none, it is now, but no later than the end of the lease. "leave": the
    worker deregistered. "sweep": nothing is known, and `seen` is now. A recovery of its drain
    counts from `seen`.
    """

    backoff: float = 1.0
    backoff_max: float = 300.0


class Swept(NamedTuple):
    runs: tuple[str, ...]
    """The ids of all runs taken from dead workers."""
    dead: tuple[str, ...]
    """The ids of those that are dead letters now."""
    workers: tuple[str, ...]


class Drain(NamedTuple):
    """Start a worker's drain. Result: the ids of what it released.

    Refused with WORKER if the worker is not registered. From now on it drains permanently and gets
    nothing new: `Claim` and `Submit` are refused with DRAINING. What it holds under a fence that is
    not in `keep` has not started, and is released as by a Release with interrupted=False. An item
    with a request to cancel is cancelled instead. The report of the drain is opened (`drains`) with
    the reason and the number of runs it still holds. A repeat releases what is not in its `keep`;
    the first reason, time and count stay.
    """

    worker: str
    reason: str
    keep: tuple[int, ...] = ()
    """The fences of what has started."""


class RequestDrain(NamedTuple):
    """Request that a worker drain. Result: None. Refused with WORKER if it is not registered.

    The worker finds the request in its row (`asked`). The first request stays.
    """

    worker: str
    why: str


class StoreDrainReport(NamedTuple):
    """Close the report of a worker's drain. Result: None.

    `report` is JSON. It is also stored for a worker that has deregistered, and for one whose drain
    was never opened. A repeat overwrites the report, unless a Sweep had to close it.
    """

    worker: str
    report: str


class RecordDurations(NamedTuple):
    """Record how long attempts of steps took, each as (workflow, step, seconds). Result: None.

    The last `DURATIONS_MAX` of each workflow and step are kept. A repeat counts them again, which
    is harmless because they are a sample.
    """

    samples: tuple[tuple[str, str, float], ...]


class SetQueueLimits(NamedTuple):
    """Set a queue's own limits; None removes a limit. Result: None.

    `keep_depth` and `keep_concurrency` leave the respective limit unchanged. A repeat is harmless.
    """

    queue: str
    depth_max: int | None
    concurrency_max: int | None
    keep_depth: bool = False
    keep_concurrency: bool = False


class Prune(NamedTuple):
    """Delete up to `limit` runs that ended before `before`, with journal and mailbox.

    Result: how many. A result below `limit` may only mean that time ran out: repeat until it is 0.

    Descendants of an unfinished run stay. A dead letter stays with its ancestors and descendants,
    because their effects were never compensated. With `dead`, dead letters are deleted too, except
    one whose compensation has begun: it stays with its descendants until the compensation is done.

    With `items`, delete only acked items. With `sessions`, delete no runs but the sessions of any
    space that expired or were deleted before `before`. Their tokens go too, so `before` should be
    `SESSION_MEMORY` seconds ago. With `ids` (and neither of those), delete only these runs, if they
    may be deleted, as with `dead`.
    """

    before: float
    limit: int = 500
    items: bool = False
    sessions: bool = False
    ids: tuple[str, ...] = ()
    """One call processes all of them, so pass no more than a few hundred."""
    dead: bool = False


class Append(NamedTuple):
    """Append values to a session's list, then keep only the newest `keep` (None: all)."""

    values: tuple[str, ...]
    keep: int | None = None


class UpdateSession(NamedTuple):
    """Change a session and its expiry. Result: the new version.

    `fields` are set first (None deletes one), then `appends` are added to lists. A field is either
    a value or a list: setting it removes the list, appending to it removes the value. With
    `version`, the command is refused with VERSION, and the current version, unless they are equal
    (0: no session exists). A command that only deletes creates no session: if none exists, its
    result is 0.

    A repeat with the token of one of the last `TOKENS_MAX` changes does nothing and returns the
    version which that change created. This holds even if the session has expired, was deleted or
    was created again since: tokens survive until they are pruned.

    With `record`, the store also writes that Record in the same transaction. The command is then
    fenced, and refused with FENCE where the Record would be. The store writes the entry's value:
    {"version": the new one}, or {"conflict": the current one} where it refuses with VERSION, so a
    refusal is recorded too. A repeat of the record (same run, seq and fence) writes nothing and
    returns what its entry says.
    """

    session: str
    token: str
    fields: dict[str, str | None]
    ttl: float | None = None
    version: int | None = None
    appends: dict[str, Append] = {}  # noqa: RUF012 - never changed
    space: str = SESSION
    record: Record | None = None
    extends: bool = False
    """If the session exists, the later expiry wins, as with ExtendSession. Otherwise the expiry is
    `ttl` seconds from now, even if that is earlier.
    """


class ExtendSession(NamedTuple):
    """Keep a session for at least `ttl` seconds from now (None: forever). Result: None.

    The result is None also if there is no session. The version does not change. The later expiry
    wins: the command never shortens the time, whatever other processes have written since.
    """

    session: str
    ttl: float | None
    space: str = SESSION


class DeleteSession(NamedTuple):
    """Delete a session and its content at once. Result: None.

    `record` works as for UpdateSession; the entry's value is {}. A tombstone stays, even if there
    was no session: an expired row that cannot be read, with the tokens of the last changes and of
    this one. So a repeat of this command or of an earlier change does nothing, even if the session
    was created again since.
    """

    session: str
    token: str
    space: str = SESSION
    record: Record | None = None


Command: TypeAlias = (
    Submit
    | SubmitMany
    | Claim
    | Record
    | SaveProgress
    | SetWaiting
    | Settle
    | Release
    | Undo
    | Ack
    | Send
    | Cancel
    | Retry
    | Resume
    | Decide
    | UndoChild
    | RegisterWorker
    | Renew
    | DeregisterWorker
    | Sweep
    | Drain
    | RequestDrain
    | StoreDrainReport
    | RecordDurations
    | SetQueueLimits
    | Prune
    | UpdateSession
    | ExtendSession
    | DeleteSession
)

LOUD = (
    Submit,
    SubmitMany,
    Settle,
    Release,
    Undo,
    Send,
    Cancel,
    Retry,
    Resume,
    Decide,
    UndoChild,
    DeregisterWorker,
    RequestDrain,
    SetQueueLimits,
)
"""Commands that other processes may wait for: a commit with one of them notifies. So does a Sweep
that found something, a Drain that released something, and any command that frees a slot in a queue
with a limit.
"""

LOUD_AT_HOME = (
    Submit,
    SubmitMany,
    Send,
    Cancel,
    Retry,
    Resume,
    Release,
    Undo,
    Decide,
    UndoChild,
    RequestDrain,
    SetQueueLimits,
)
"""Commands that this process's own runs, claimer and consumers may wait for. It already knows what
it settles itself.
"""
