"""Define the claim, and what a worker writes about the runs it holds.

All commands but `Claim` are fenced: see the package.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from outlast.store.rows import NEVER, EntryKind, Status


class Claim(NamedTuple):
    """Give claimable runs to a worker: queued or waiting, due, and not held by any worker.

    With `ids`, claim exactly these runs if they are due and their keys' limits allow it, whatever
    their queue allows. Otherwise claim at most `limit` runs of these queues and workflows (empty:
    any but EACH). The order is: highest priority first, interrupted before new (older interruption
    first), earlier due time first. At most `returned` of them are interrupted runs. A queue with
    its own concurrency limit yields only as many as its running runs leave free. With `suspects`
    only suspects are claimed (see `Sweep`), otherwise none of them.

    Runs with a key take turns. Of the due runs of a queue, key and workflow only the first in the
    order above is claimable, and its place among equal priorities is the time at which it came to
    be the first (`RunRow.turn`). New runs take turns apart from those that have started before, and
    so do suspects. If the key is at a limit of its queue (see `SetQueueLimits`), none is claimable,
    except one that is being compensated, which takes no turns.

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
    kind: EntryKind
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
    status: Status
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
    fields = {
        "status": status,
        "value": value,
        "error": error,
        "reason": reason,
        "failed_at": failed_at,
    }
    return json.dumps(fields)


class Ack(NamedTuple):
    """Mark an item as done. Fenced. Result: None.

    A repeat is accepted if this fence acked the item.
    """

    run: int
    fence: int
    queue: str
