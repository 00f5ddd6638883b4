"""Runs that have not ended on a store that lives: whether somebody has each of them, or could have had it."""

from __future__ import annotations

import math
from typing import NamedTuple

from outlast.store.commands import EACH, ITEM
from outlast.store.fleet import names_of
from outlast.store.protocol import Store
from outlast.store.rows import NEVER, RunRow, WorkerRow
from outlast.tools.chaos.findings import Findings, Scope


class LiveWorkers(NamedTuple):
    """Who could take a run: the queues and workflows of a worker that lives and does not drain."""

    ids: frozenset[str]
    """Of all that are enlisted, whatever they do."""
    expired: frozenset[str]
    claims: tuple[tuple[frozenset[str], frozenset[str]], ...]

    def would_take(self, row: RunRow) -> bool:
        known = row.workflow in (ITEM, EACH)
        return any(
            row.queue in queues and (known or row.workflow in workflows)
            for queues, workflows in self.claims
        )


def live_workers(store: Store, scope: Scope) -> LiveWorkers:
    now, workers = store.now(), store.workers()
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
    """One with which no comparison is true, where a file has something else: it says neither that a worker lives nor that it does not."""
    return found if isinstance(found, (int, float)) else math.nan


def _has_asked(worker: WorkerRow) -> bool:
    """It will drain in a moment."""
    return worker.asked is not None


def under_way(store: Store, scope: Scope, found: Findings, there: LiveWorkers, row: RunRow) -> None:
    """A violation where nobody has it, and somebody should."""
    if row.status == "running":
        _held(store, scope, found, there, row)
        return
    now, due = store.now(), max(row.due, row.created)
    if due >= NEVER or now - due <= scope.objective:
        return
    returned = row.status == "queued" and (row.interrupted is not None or row.deaths_in_a_row > 0)
    if not (returned or row.status == "waiting") or found.is_full(store, row.queue):
        found.backlog += 1  # it waits for a slot: that is a queue
    elif not there.would_take(row):
        _nobody(store, found, row, returned=returned)
    elif row.is_suspect:
        found.suspects += 1  # it waits for a worker with empty hands, which may take long
    elif _is_so_still(store, row):
        found["ended"].violate(
            f"{row.id} ({row.status}) could go on since {now - due:.0f} s, and workers live that know it: {row.reason or ''}"
        )


def _held(store: Store, scope: Scope, found: Findings, there: LiveWorkers, row: RunRow) -> None:
    if row.worker in there.expired:
        if _is_so_still(store, row):
            found["ended"].violate(
                f"{row.id} is held by worker {row.worker}, whose lease ran out more than {scope.objective:g} s and another lease ago, and nobody has swept it"
            )
    elif (
        row.worker not in there.ids and _is_unknown(store, row.worker) and _is_so_still(store, row)
    ):
        found["ended"].violate(f"{row.id} is held by worker {row.worker}, which is not enlisted")


def _nobody(store: Store, found: Findings, row: RunRow, *, returned: bool) -> None:
    """No living worker takes it. What lost its worker has not gone on, then; of what only waited nobody can say whether anybody is meant to be there."""
    if not returned:
        found.nobody += 1
    elif _is_so_still(store, row):
        found["recovery"].violate(
            f"{row.id} lost its worker and has not gone on since {store.now() - row.due:.0f} s: no living worker takes {row.workflow} from queue {row.queue}"
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
