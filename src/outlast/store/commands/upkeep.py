"""Define the limits of queues, the samples of durations and the pruning."""

from __future__ import annotations

from typing import NamedTuple

DURATIONS_MAX = 200
"""How many durations are kept per workflow and step. The oldest are deleted."""


class RecordDurations(NamedTuple):
    """Record how long attempts of steps took, each as (workflow, step, seconds). Result: None.

    The last `DURATIONS_MAX` of each workflow and step are kept. A repeat counts them again, which
    is harmless because they are a sample.
    """

    samples: tuple[tuple[str, str, float], ...]


class SetQueueLimits(NamedTuple):
    """Set a queue's own limits; None removes a limit. Result: None.

    Each `keep_…` leaves the respective limit unchanged. A repeat is harmless.

    `key_concurrency_max` limits how many runs of one key execute at once. `key_starts_max` limits
    how many runs of one key start in any `key_period` seconds. A run counts once, when it is first
    claimed. Both are exact, whichever worker claims. A run that is being compensated does not wait
    for either, and it counts while it executes.

    No run of a queue that is `paused` is claimed, as with a `concurrency_max` of 0, which it keeps.
    None leaves the queue as it is.
    """

    queue: str
    depth_max: int | None
    concurrency_max: int | None
    keep_depth: bool = False
    keep_concurrency: bool = False
    key_concurrency_max: int | None = None
    key_starts_max: int | None = None
    key_period: float | None = None
    keep_key_concurrency: bool = True
    keep_key_rate: bool = True
    paused: bool | None = None


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
