"""The commands: everything that can be written to a store.

A command is a small immutable value. `Store.commit` takes any mixture of them, applies them in order in one
transaction, and returns one outcome a command: its result, or a `Refused`. A refused verb has changed nothing and
does not disturb its neighbours. A command may be committed again under the same ids when it is not known whether it
was (its contract says what a repeat does).

**Fenced** commands carry `run` (the run's number in the store) and `fence`. They are refused with `FENCE` unless the run
still has that fence; the comparison is part of the statement that writes. Fences come from one counter of the store and
only grow, over all runs and over pruning; a fence that was given up is stored as its negative, which no life has.
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
"""How many reports of drains are kept, with their recoveries: the newest."""

DURATIONS_MAX = 200
"""How many durations are kept of each workflow and step: the newest."""

ITEM = ""
"""The workflow of a plain work item: there is none."""

EACH = "(each)"
"""The workflow of a run that is an `each`: who goes through the items has the code. It is claimed only by who names it."""


SESSION = "session"
CHECKPOINT = "checkpoint"
"""The spaces of sessions: the same id in two spaces is two sessions."""

TOKENS_MAX = 20
"""How many changes of a session can be told from their repeats: the newest."""

SESSION_MEMORY = 300.0
"""Seconds that a session stays in the store after it has expired or was forgotten, for its tokens: a later repeat is a new change."""


class Refused(NamedTuple):
    """A command that was not carried out. `why` is one of the constants of this module."""

    why: str
    detail: str = ""


class Submit(NamedTuple):
    """Insert a run. With `worker` it is owned by that worker at once, under a fence of its own.

    Result: `Submitted(row, new)`. An id that exists is not touched: its row is returned with new=False. A repeat with the
    same token is new=True again as long as the run is as this submission left it (queued, or held by the worker), so the
    outcome of an unknown commit can be found out by committing again. Refused with WORKER if the worker is not enlisted, with
    DRAINING if it drains, whether the id exists or not, unless this is a repeat and the worker holds the run; a new one without a
    worker is refused with DEPTH, "depth/limit/needed", if its queue would have more than `depth_max` queued runs, or than the
    queue's own limit if it has one.
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
    """Deaths in a row without a new entry (for an item also failures) that make it a dead letter."""
    interruptions_max: int = 100
    """The same for interruptions."""
    depth_max: int | None = None
    abandon_after: float | None = None
    """See `Claim`."""


class Submitted(NamedTuple):
    row: RunRow | None
    """None for a new run that nobody holds: there is nothing to know of it yet."""
    new: bool


class SubmitMany(NamedTuple):
    """Queue several runs, none with a worker: all of them or none. Result: list[Submitted], in their order.

    Refused with DEPTH as a whole, where the new ones do not all fit; with CONFLICT, and the id, if an id is there already (or twice
    in here) with another workflow or other arguments. A repeat finds its runs there.
    """

    runs: tuple[Submit, ...]


class Claim(NamedTuple):
    """Give claimable runs to a worker: queued or waiting, due, and owned by nobody.

    With `ids`, just these, if they are due, whatever their queue allows. Otherwise at most `limit` runs of these queues and
    workflows (empty: any but EACH): highest priority first, interrupted before new (older interruption first), due earlier before due
    later; at most `returned` of them interrupted ones; from a queue with a limit of its own only as many as its running runs leave. With
    `suspects` only suspects (see Sweep), otherwise none of these.
    Of those that were not named, one that has begun before and was claimable for more than its `abandon_after` seconds, while one
    worker of its queue that knows its workflow was here and the store was awake (see Sweep), is being undone from now on, as by Undo;
    its verdict is failed, with `Abandoned`.
    Each gets a new fence. Refused with WORKER if the worker is not enlisted, with DRAINING if it drains. A run that a draining
    worker left is a recovery of that drain now.
    Result: list[RunRow], in the order above. A repeat with the same token returns the same runs while this worker holds them.
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
    cost: str | None = None


class SaveProgress(NamedTuple):
    """Keep the progress of a step that has not ended, over what it had saved before. Fenced. Result: None. A repeat is harmless.

    One that comes after a Save of a later attempt of the step in the same life changes nothing. It is forgotten when the run is settled. A run that
    has saved anything in a life has got somewhere in it.
    """

    run: int
    fence: int
    key: str
    attempt: int
    value: str


class SetWaiting(NamedTuple):
    """Say what a run waits for (names of messages), for those who look. Fenced. Result: None. A repeat is harmless."""

    run: int
    fence: int
    names: tuple[str, ...]


class Settle(NamedTuple):
    """End a run as done, failed or cancelled, or park it; the fence is void after. Fenced. Result: None.

    One that was being undone is no longer, unless it is parked. A repeat is accepted if it was this fence that settled the run.
    With `unless_cancelled` a run that somebody wants to end, and that is not being undone, is not parked: refused with CANCEL, and the
    reason of the request. The fence stays good, and its life ends the run.
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
    """Give a run back, claimable after `delay`; the fence is void after. Fenced. Result: its status after.

    `interrupted` raises it above new work of its priority and adds an `interruption` entry; too many in a row without a new
    entry make it a dead letter. `failed` (for items) counts a failure instead, with a `failure` entry; too many make it one too.
    `waiting`: it waits for `waits` (names of messages), for the end of the runs `children`, and until `due`. Where there is
    more to know than the life knew (a message of these names after number `seen`, a request to cancel, a child that has ended
    or is not there) it is due at once. From then on such a message, request or end makes it due.
    A repeat is accepted while nobody has claimed the run since.
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
    """The run is to be undone before it ends; the fence is void after. Fenced. Result: None.

    `verdict` is how it ends then, as `verdict(...)` says it. The run is
    `undoing` from now on: queued, due at once and ahead of new work, with an `undoing` entry (its value is the verdict), and without a
    deadline or a request to cancel. It is no interruption, and no row of deaths or interruptions goes on. Refused with STATUS,
    "undoing", if it is being undone already. A repeat is accepted while nobody has claimed the run since.
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
    """How a run ends once it is undone, each as Settle takes it: as JSON."""
    said = {
        "status": status,
        "value": value,
        "error": error,
        "reason": reason,
        "failed_at": failed_at,
    }
    return json.dumps(said)


class Ack(NamedTuple):
    """An item is done. Fenced. Result: None. A repeat is accepted if it was this fence that acked it."""

    run: int
    fence: int
    queue: str


class Send(NamedTuple):
    """Put a message into a run's mailbox. Result: None; refused with UNKNOWN, or STATUS once the run has ended, or ("item") if nobody could receive it.

    The same name and message id again: nothing is written, whatever the value. A run that waits for the name becomes claimable.
    Any other is refused with DEPTH, and their number, if the run was sent `messages_max` messages already; those that it has received count too.
    """

    id: str
    name: str
    message: str
    value: str
    messages_max: int | None = None


class Cancel(NamedTuple):
    """Ask a run to end. Result: its status after. Refused with UNKNOWN, or STATUS once it has ended.

    A run that never started, is parked, or is a dead letter, and any item that nobody holds, is cancelled here and now; any other
    must be claimed, so that its `finally` blocks execute. The first reason stays.
    But a parked or dead run with an `intent` or `compensation` entry, or with children, is undone first, as by Undo, to end as cancelled. One that is being
    undone already, and has not been settled, is refused with STATUS, "undoing".
    """

    id: str
    why: str


class Retry(NamedTuple):
    """Queue a failed, cancelled or dead run again. Result: None. Refused with UNKNOWN or STATUS.

    A `retry` entry voids the journal from the entry that ended the run; everything before it is kept. A run that is being undone may
    also be parked; its entry voids nothing, and it is undone further. A repeat with the same token is accepted and does nothing, even if
    the run has ended again since.

    A child belongs to its parent. It is refused with PARENT, and the parent's status, if the parent has ended, is "undoing" or is "gone":
    nobody would own what the child does then. With `seen`, it is also refused with VERSION, and the number of the parent's last entry,
    if that is not `seen`: the parent may have recorded the child's end. A child that is being undone is undone further in any case.
    An EACH is not checked: it does nothing until its parent asks for it.
    """

    id: str
    token: str
    seen: int | None = None


class Resume(NamedTuple):
    """Queue a parked run again (an EACH also if it is done), with a `resume` entry. Result: None. Refused with UNKNOWN or STATUS.

    What is being undone is undone further. A repeat with the same token is accepted and does nothing, even if the run was parked again
    since.
    """

    id: str
    token: str


class Decide(NamedTuple):
    """Queue a parked run again with what a person says of one of its effects. Result: None.

    `decision` is a JSON object; with the token in it, it becomes a `decision` entry under `key`. With a `verdict` the run is undone
    from then on, as by Undo. Refused with UNKNOWN; with STATUS, and its status, if it is not parked; with VERSION, and the number of its last
    entry, if that is not `seen`: the person has seen something else.
    A repeat with the same token is accepted and does nothing, even if the run was parked again since.
    """

    id: str
    key: str
    decision: str
    seen: int
    token: str
    verdict: str | None = None


class UndoChild(NamedTuple):
    """Undo a child that is done, as by Undo, to end as cancelled. Result: its status after. Refused with UNKNOWN if `parent` has no such child.

    Without an `intent` or `compensation` entry, or children of its own, there is nothing to undo: it stays "done". A child in any other status, so also
    one that is being undone already, stays as it is. Its value is kept until it is settled again.
    `unheld`: also one that has begun, not ended (or is a dead letter), and that nobody holds, whatever it has done: its own code is not executed.
    """

    id: str
    parent: str
    why: str
    unheld: bool = False


class RegisterWorker(NamedTuple):
    """Make a worker known, with a lease. Result: None. A repeat renews, and says anew what it claims."""

    worker: str
    host: str
    pid: int
    lease: float
    queues: tuple[str, ...] = ()
    """What it claims from; none if it claims nothing."""
    workflows: tuple[str, ...] = ()
    concurrency: int = 0


class Renew(NamedTuple):
    """Extend a worker's lease. Result: None. Refused with WORKER if it was swept: its runs are lost to it.

    `draining` is for good: a renewal without it does not take it back. It opens no report; see `Drain`.
    """

    worker: str
    lease: float
    draining: bool = False


class DeregisterWorker(NamedTuple):
    """Strike a worker off. Runs it still holds are swept as interrupted, not dead; `seen` of their entries (see `Sweep`) is now. Result: None.

    The report of its drain stays open: only the worker knows that it has ended.
    """

    worker: str


DAMAGED_SECONDS = 3600.0


class Sweep(NamedTuple):
    """Take the runs of dead workers from them, fence void. Result: `Swept`.

    Dead is a worker whose lock is free and whose heartbeat is old, or whose lease ran out while the store was awake: signs of
    life (Enlist, Renew, Sweep, of anybody) came, without a gap of more than half the shortest lease, for as long as its lease is.
    After an outage, or a clock that jumped, everybody has a whole lease to renew. One whose numbers no Outlast can have written (a lease, its end
    or its last renewal that is no number, or an end that is later than the lease allows by DAMAGED_SECONDS) gets a lease of DAMAGED_SECONDS
    instead: whoever lives has renewed by then, and so put them right.
    Each of its runs gets a `death` entry and goes back. One that has recorded anything of its own in this life (a step, an
    attempt, an inner step, a child, what it did with a session), or whose child the worker held too, goes ahead of new work. Of any other
    `deaths_in_a_row` grows. After the first it goes ahead of new work too. After the second (SUSPECT_DEATHS) it is a suspect: from then on the
    count grows only by deaths alone, when the worker held nothing else but the run's ancestors, and with each it is due later, after `backoff`
    seconds, doubled. A death alone with which it is `attempts_max` or more makes it a dead letter.
    In a kill storm that takes more deaths (`deaths_allowed`). The store records which workers died when, and the runs that are charged for each.
    Others are those on record since the run's first death in this row, but at least FLEET_SECONDS_MIN and at most FLEET_SECONDS back, for which it is
    not charged. Those for which a single other run is charged count once for that run. Workers are the enlisted ones and those of this sweep,
    which go in the order of their ids. Workers that were draining, and those that an outage cut off, are not on record.
    The runs of a worker that was draining get an `interruption` instead, and are not charged. Its report, if it is still open or was
    never opened, is closed with what is known: {"cut_short": true, "left": ids of what was taken from it, "why": how it died, "seen": as
    the entries have it}.
    The entries say in their JSON, besides `why`, when the worker was last `seen`, by the store's clock and never later than now, and
    `by` what: "lease" (it ran out: the last renewal), "lock" (nobody holds it: the last heartbeat, or, where the store knows of none, now, but no
    later than the end of the lease), "leave", or "sweep" (nothing is known of it: now). A recovery of its drain counts from there.
    """

    backoff: float = 1.0
    backoff_max: float = 300.0


class Swept(NamedTuple):
    runs: tuple[str, ...]
    """Everything that was taken from dead workers."""
    dead: tuple[str, ...]
    """Those of them that are dead letters now."""
    workers: tuple[str, ...]


class Drain(NamedTuple):
    """A worker begins to drain. Result: the ids of what it gave back. Refused with WORKER if it is not enlisted.

    It is draining from now on, for good: nothing comes into its hands any more (`Claim` and `Submit` are refused with DRAINING).
    Whatever it holds under a fence that is not in `keep` had not begun, and goes back as by a Release with interrupted=False; an item
    that somebody wants to end is cancelled. The report of its drain is opened (`drains`), with the reason, and how many runs it
    still holds. A repeat gives back what is not in its `keep`; the first reason, time and count stay.
    """

    worker: str
    reason: str
    keep: tuple[int, ...] = ()
    """The fences of what has begun."""


class RequestDrain(NamedTuple):
    """Ask a worker to drain. Result: None. Refused with WORKER if it is not enlisted.

    The worker finds the request in its row (`asked`). The first one stays.
    """

    worker: str
    why: str


class StoreDrainReport(NamedTuple):
    """Close the report of a worker's drain. Result: None.

    `report` is JSON. It is taken also of a worker that has left, and of one whose drain was never opened. A repeat overwrites; but a
    report that a Sweep had to close stays as it is.
    """

    worker: str
    report: str


class RecordDurations(NamedTuple):
    """Keep how long attempts of steps took: (workflow, step, seconds) each. Result: None.

    The last `DURATIONS_MAX` of each workflow and step are kept. A repeat counts them again, which harms nothing: they are a sample.
    """

    samples: tuple[tuple[str, str, float], ...]


class SetQueueLimits(NamedTuple):
    """Give a queue limits of its own; None: none. What is kept stays as it is. Result: None. A repeat is harmless."""

    queue: str
    depth_max: int | None
    concurrency_max: int | None
    keep_depth: bool = False
    keep_concurrency: bool = False


class Prune(NamedTuple):
    """Delete up to `limit` runs that ended before `before`, with journal and mailbox. Result: how many.

    Fewer than `limit` may be all that there was time for: ask again until there is nothing.

    What is below a run that has not ended stays, and so does a dead letter with those above and below it: what these have done outside was
    never undone. With `dead` dead letters go too, but for one whose undoing has begun: it stays until it is undone, with those below it.
    With `items` just items that were acked; with `sessions` no runs, but sessions of any space that have expired or were forgotten before
    it: with their tokens, so `before` should be `SESSION_MEMORY` seconds ago. With `ids` (and neither of those) just these, if they may go
    and as with `dead`.
    """

    before: float
    limit: int = 500
    items: bool = False
    sessions: bool = False
    ids: tuple[str, ...] = ()
    """One call goes through all of them: name no more than a few hundred."""
    dead: bool = False


class Append(NamedTuple):
    """Values to add to the end of a session's list, of which only the newest `keep` stay then; None: all."""

    values: tuple[str, ...]
    keep: int | None = None


class UpdateSession(NamedTuple):
    """Change a session, and its expiry: fields are set (None deletes one), and values appended to lists. Result: the new version.

    A field has a value or is a list: one that is set is no list any more, one that is appended to loses its value. Fields are set
    first. With `version`, refused with VERSION, and the current one, unless that is it (0: there is none yet). One that only deletes
    makes no session: where there is none, its result is 0.
    A repeat with the token of one of the last `TOKENS_MAX` changes does nothing and gives the version that this change made, also where
    the session has expired since, was forgotten, or was made anew after that: tokens outlive all of it, until they are pruned.
    With `record` it is also that Record, in one: fenced, and refused with FENCE where that would be. The entry's value is written by
    the store: {"version": the new one}, or, where it is refused with VERSION, {"conflict": the current one}, so a refusal is
    recorded too. A repeat of the record (same run, seq and fence) writes nothing and gives what its entry says.
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
    """Of one that is there, the later expiry wins, as with Touch; otherwise it is `ttl` seconds from now, also where that is earlier."""


class ExtendSession(NamedTuple):
    """Have a session kept for `ttl` seconds from now at least (None: for ever). Result: None, also where there is none. It is no change.

    The later expiry wins: it never shortens the time, whatever others have written since somebody thought that it was needed.
    """

    session: str
    ttl: float | None
    space: str = SESSION


class DeleteSession(NamedTuple):
    """Delete a session: what was in it is gone at once. Result: None. With `record` as for Keep; the entry's value is {}.

    What stays is a tombstone, also where there was no session: a row that nobody can read, expired now, with the tokens of the last
    changes and this one's. So a repeat does nothing, neither of this nor of a change before it, whoever has made the session anew.
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
    Submit, SubmitMany, Settle, Release, Undo, Send, Cancel, Retry, Resume, Decide, UndoChild, DeregisterWorker, RequestDrain, SetQueueLimits,
)  # fmt: skip
"""Commands that somebody else may be waiting for: a commit with one of them rings the bell. So does a Sweep that found something, a
Drain that gave something back, and whatever makes a slot free in a queue with a limit."""

LOUD_AT_HOME = (
    Submit, SubmitMany, Send, Cancel, Retry, Resume, Release, Undo, Decide, UndoChild, RequestDrain, SetQueueLimits,
)  # fmt: skip
"""Those that this process's own runs, claimer and consumers may wait for. What it settles itself it knows."""
