"""Define the commands that insert runs."""

from __future__ import annotations

from typing import NamedTuple

from outlast.store.rows import RunRow

ITEM = ""
"""The workflow name of a plain work item, which has no workflow."""

EACH = "(each)"
"""The workflow name of a run that represents an `each`. The process that iterates over the items
has the code, so only a Claim that names it gets such a run.
"""


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

    With `replace`, a run that waits for its first claim becomes this submission, if it has the same
    workflow, queue and key, and no parent: it takes the arguments, token, seed, priority, due time,
    timeout, `abandon_after` and `by`. The outcome is that of a new run. It keeps its time of
    creation and its messages, and no queue gets longer, so it is not refused. Any other run that
    exists is not touched.
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
    by: str | None = None
    """Who submits the run. It is kept with the run."""
    key: str | None = None
    """Whose limits the run counts against: see `SetQueueLimits`. Runs with a key take turns: see
    `Claim`. None for a run with a parent or a worker.
    """
    replace: bool = False
    """False for a run with a parent or a worker, and in a SubmitMany."""


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
