"""A guest: a bench in somebody's store. One at a time, and when it goes its runs are deleted, and no others.

What a bench that was killed has left is cleared by the next one. Nothing of a bench's own workflows deals with the outside, so that a run
of theirs can be ended without being executed.
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
"""Seconds. Nothing of a bench takes longer without a word to the store."""
ALONE_SECONDS = 3.0
"""How long a bench may seem to be there that is not: two heartbeats, and some."""
PAGE = 100
PRUNE_BATCH = 10
"""Runs that are deleted in one commit, with their journals: who writes beside waits no longer than that takes."""
WHY = "it was a bench's"


class OneAtATime(StoreUnavailable):
    """Another bench is in the store. Nothing was written."""


class Guest:
    def __init__(self, store: Store, settings: Settings) -> None:
        """The store is open."""
        self.store, self._settings = store, settings
        self.worker = secrets.token_hex(8)

    def write(self, commands: Sequence[Command]) -> list[Any]:
        try:
            return self.store.commit(commands)
        except CommitUnknown:
            self.store.recover()
            return self.store.commit(commands)

    def register(self) -> None:
        """Be here, or still be. It claims nothing; by its workflows the next one knows it."""
        self.write([self._registration()])

    def _registration(self) -> RegisterWorker:
        host, pid = socket.gethostname(), os.getpid()
        return RegisterWorker(self.worker, host, pid, LEASE, (QUEUE,), tuple(sorted(WORKFLOWS)))

    def be_alone(self) -> None:
        """Who died is swept, as by any worker. OneAtATime for another bench that was here first."""
        rows = {row.id: row for row in self.store.workers()}
        mine = rows[self.worker]
        left = self._sweep_until_gone(lambda row: (row.started, row.id) < (mine.started, mine.id))
        if left:
            raise OneAtATime(
                f"another bench is in this store, process {left[0].pid} on {left[0].host}: one at a time, or neither's figures would mean anything. "
                f"If it is gone, it is struck off after {left[0].lease:g} s at the most."
            )

    def see_off(self, pids: frozenset[int]) -> None:
        """Strike off workers of this host that are known to be gone: their processes were waited for."""
        host = socket.gethostname()
        left = self._sweep_until_gone(lambda row: row.host == host and row.pid in pids)
        if left:
            self.write([DeregisterWorker(row.id) for row in left])

    def _sweep_until_gone(self, who: Callable[[WorkerRow], bool]) -> list[WorkerRow]:
        """Those of a bench's workers that are still there when that has taken long enough."""
        until = time.monotonic() + ALONE_SECONDS
        while found := [row for row in self.store.workers() if self._is_a_bench(row) and who(row)]:
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
        """End and delete every run of a bench's, a page at a time. Who is in the queue under another name is not touched."""
        before: int | None = None
        while rows := self.store.runs(RunQuery(queue=QUEUE, limit=PAGE, before_pk=before)):
            before = rows[-1].pk
            own = [row for row in rows if row.workflow in WORKFLOWS]
            self._end([row for row in own if row.status not in ENDED])
            for start in range(0, len(own), PRUNE_BATCH):
                ids = tuple(row.id for row in own[start : start + PRUNE_BATCH])
                self.write([Prune(self.store.now() + LEASE, ids=ids)])

    def _end(self, rows: list[RunRow]) -> None:
        """A request to cancel ends what has never begun, and makes the others due: they are claimed, and settled."""
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
    """In a store that is not open yet. What another bench has left is cleared when it comes, its own runs when it goes."""
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
