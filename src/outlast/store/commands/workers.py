"""Define the commands about workers: registration, leases, deaths and drains."""

from __future__ import annotations

from typing import NamedTuple

DRAINS_MAX = 1_000
"""How many drain reports are kept, with their recoveries. The oldest are deleted."""


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
