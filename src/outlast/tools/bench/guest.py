"""Run a bench as a guest in a user's store.

Only one bench runs at a time. When it leaves, it deletes its own runs and no others.

A bench also deletes what a killed bench left behind. The bench's workflows have no effects outside,
so their runs can be ended without being executed.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from outlast.errors import StoreUnavailable
from outlast.settings import Settings
from outlast.store.commands import (
    Cancel,
    Claim,
    Command,
    DeregisterWorker,
    Prune,
    RegisterWorker,
    Settle,
    Sweep,
)
from outlast.store.protocol import CommitUnknown, Store
from outlast.store.rows import ENDED, RunQuery, RunRow, WorkerRow
from outlast.tools.bench.names import QUEUE, WORKFLOWS

LEASE = 60.0
"""Seconds. Every part of a bench contacts the store more often than this."""
ALONE_SECONDS = 3.0
"""How long a dead bench may still seem alive: a little more than two heartbeats."""
PAGE = 100
PRUNE_BATCH = 10
"""Runs deleted per commit, with their journals. Bounds how long other writers wait."""
WHY = "it belonged to a benchmark"


class OneAtATime(StoreUnavailable):
    """Another bench uses the store. Nothing was written."""


class Guest:
    def __init__(self, store: Store, settings: Settings) -> None:
        """Use a store that is already open."""
        self.store = store
        self._settings = settings
        self.worker = secrets.token_hex(8)

    def write(self, commands: Sequence[Command]) -> list[Any]:
        try:
            return self.store.commit(commands)
        except CommitUnknown:
            self.store.recover()
            return self.store.commit(commands)

    def register(self) -> None:
        """Register as a worker, or renew the registration.

        The guest claims nothing. Other benches recognize it by its workflows.
        """
        self.write([self._registration()])

    def _registration(self) -> RegisterWorker:
        host = socket.gethostname()
        pid = os.getpid()
        return RegisterWorker(self.worker, host, pid, LEASE, (QUEUE,), tuple(sorted(WORKFLOWS)))

    def be_alone(self) -> None:
        """Sweep dead benches, as any worker would.

        Raise OneAtATime if another bench was here first.
        """
        rows = {row.id: row for row in self.store.workers()}
        mine = rows[self.worker]
        left = self._sweep_until_gone(lambda row: (row.started, row.id) < (mine.started, mine.id))
        if left:
            raise OneAtATime(
                f"another bench is using this store: process {left[0].pid} on "
                f"{left[0].host}. Wait for it to end, or both would measure each other's load. "
                f"If it is dead, it is deregistered within {left[0].lease:g} s."
            )

    def see_off(self, pids: frozenset[int]) -> None:
        """Deregister workers of this host whose processes are known to be gone."""
        host = socket.gethostname()
        left = self._sweep_until_gone(lambda row: row.host == host and row.pid in pids)
        if left:
            self.write([DeregisterWorker(row.id) for row in left])

    def _sweep_until_gone(self, matches: Callable[[WorkerRow], bool]) -> list[WorkerRow]:
        """Return the matching bench workers that still exist after a time limit."""
        until = time.monotonic() + ALONE_SECONDS
        while found := [
            row for row in self.store.workers() if self._is_a_bench(row) and matches(row)
        ]:
            if {row.id for row in found} & set(self.store.dead_workers()):
                self.write([Sweep(self._settings.death_backoff, self._settings.death_backoff_max)])
            elif time.monotonic() > until:
                break
            else:
                time.sleep(0.05)
        return found

    def _is_a_bench(self, row: WorkerRow) -> bool:
        return row.id != self.worker and not WORKFLOWS.isdisjoint(json.loads(row.workflows))

    def clear(self) -> None:
        """End and delete every run of a bench, page by page.

        Leave other workflows in the queue alone.
        """
        before: int | None = None
        while rows := self.store.runs(RunQuery(queue=QUEUE, limit=PAGE, before_pk=before)):
            before = rows[-1].pk
            own = [row for row in rows if row.workflow in WORKFLOWS]
            self._end([row for row in own if row.status not in ENDED])
            for start in range(0, len(own), PRUNE_BATCH):
                ids = tuple(row.id for row in own[start : start + PRUNE_BATCH])
                self.write([Prune(self.store.now() + LEASE, ids=ids)])

    def _end(self, rows: list[RunRow]) -> None:
        """End open runs.

        A cancel request ends runs that never began and makes the others due. The guest then claims
        and settles those.
        """
        if not rows:
            return
        ids = tuple(row.id for row in rows)
        claim = Claim(self.worker, secrets.token_hex(8), ids, limit=len(ids))
        *_, held = self.write([self._registration(), *(Cancel(id, WHY) for id in ids), claim])
        self.write([Settle(row.pk, row.fence, "cancelled", reason=WHY) for row in held])

    def leave(self) -> None:
        self.write([DeregisterWorker(self.worker)])
        self.store.release_liveness(self.worker)


@contextmanager
def guest(store: Store, settings: Settings) -> Iterator[Guest]:
    """Open the store and yield a guest in it.

    Delete what another bench left when entering, and the guest's own runs when leaving.
    """
    store.open()
    try:
        one = Guest(store, settings)
        try:
            store.acquire_liveness(one.worker)
            one.register()
            one.be_alone()
            try:
                one.clear()
                yield one
            finally:
                one.clear()
        finally:
            one.leave()
    finally:
        store.close()
