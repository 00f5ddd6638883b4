"""Check open runs on a live store: whether a worker holds each one, or should."""

from __future__ import annotations

import math
from typing import NamedTuple

from outlast.store.commands import EACH, ITEM
from outlast.store.fleet import names_of
from outlast.store.protocol import Store
from outlast.store.rows import NEVER, RunRow, WorkerRow
from outlast.tools.chaos.findings import Findings, Scope


class LiveWorkers(NamedTuple):
    """The workers of a store, and what those that live and do not drain would claim."""

    ids: frozenset[str]
    """All registered workers, whatever their state."""
    expired: frozenset[str]
    claims: tuple[tuple[frozenset[str], frozenset[str]], ...]

    def would_take(self, row: RunRow) -> bool:
        known = row.workflow in (ITEM, EACH)
        return any(
            row.queue in queues and (known or row.workflow in workflows)
            for queues, workflows in self.claims
        )


def live_workers(store: Store, scope: Scope) -> LiveWorkers:
    now = store.now()
    workers = store.workers()
    late = frozenset(
        worker.id
        for worker in workers
        if number_of(worker.lease_until) + number_of(worker.lease) + scope.objective < now
    )
    claims = tuple(
        (frozenset(names_of(worker.queues)), frozenset(names_of(worker.workflows)))
        for worker in workers
        if number_of(worker.lease_until) > now and not worker.draining and not _has_asked(worker)
    )
    return LiveWorkers(frozenset(worker.id for worker in workers), late, claims)


def number_of(found: float) -> float:
    """Return the number, or NaN if a damaged file has something else.

    Every comparison with NaN is false, so the worker counts neither as live nor as dead.
    """
    return found if isinstance(found, (int, float)) else math.nan


def _has_asked(worker: WorkerRow) -> bool:
    """Return whether the worker was asked to drain and is about to."""
    return worker.asked is not None


def under_way(store: Store, scope: Scope, found: Findings, there: LiveWorkers, row: RunRow) -> None:
    """Record a violation if no worker holds the run although one should."""
    if row.status == "running":
        _held(store, scope, found, there, row)
        return
    now = store.now()
    due = max(row.due, row.created)
    if due >= NEVER or now - due <= scope.objective:
        return
    returned = row.status == "queued" and (row.interrupted is not None or row.deaths_in_a_row > 0)
    if not (returned or row.status == "waiting") or found.is_full(store, row.queue):
        # The run waits for a slot, as in any queue.
        found.backlog += 1
    elif not there.would_take(row):
        _nobody(store, found, row, returned=returned)
    elif row.is_suspect:
        # A suspect waits for a worker that holds nothing else, which may take long.
        found.suspects += 1
    elif _is_so_still(store, row):
        found["ended"].violate(
            f"{row.id} ({row.status}) has been due for {now - due:.0f} s, although live workers "
            f"know its workflow: {row.reason or ''}"
        )


def _held(store: Store, scope: Scope, found: Findings, there: LiveWorkers, row: RunRow) -> None:
    if row.worker in there.expired:
        if _is_so_still(store, row):
            found["ended"].violate(
                f"{row.id} is held by worker {row.worker}, whose lease expired more than "
                f"{scope.objective:g} s and another lease ago, and no worker has swept it"
            )
    elif (
        row.worker not in there.ids and _is_unknown(store, row.worker) and _is_so_still(store, row)
    ):
        found["ended"].violate(f"{row.id} is held by worker {row.worker}, which is not registered")


def _nobody(store: Store, found: Findings, row: RunRow, *, returned: bool) -> None:
    """Record that no live worker would claim the run.

    A run that lost its worker violates the recovery check. A run that only waited is counted: the
    store cannot tell whether a worker is meant to be there.
    """
    if not returned:
        found.nobody += 1
    elif _is_so_still(store, row):
        found["recovery"].violate(
            f"{row.id} lost its worker {store.now() - row.due:.0f} s ago and has not continued: no "
            f"live worker claims {row.workflow} from queue {row.queue}"
        )


def _is_unknown(store: Store, worker: str | None) -> bool:
    return worker not in {one.id for one in store.workers()}


def _is_so_still(store: Store, row: RunRow) -> bool:
    again = store.run(row.id)
    return again is not None and (again.fence, again.status, again.due) == (
        row.fence,
        row.status,
        row.due,
    )
