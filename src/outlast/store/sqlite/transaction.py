"""Hold the state of one transaction, and the helpers that the commands share."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

from outlast.store.rows import RunRow
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.pruning import PruneCursor
from outlast.store.sqlite.queues import QueueCounts
from outlast.store.sqlite.workers import Alive


class Registered(NamedTuple):
    """A registered worker as a claim sees it."""

    draining: int
    host: str
    pid: int


class Transaction:
    """One transaction on the store: a connection, the time, and which workers are alive."""

    def __init__(
        self,
        db: sqlite3.Connection,
        now: float,
        alive: Alive,
        prune_cursor: PruneCursor | None = None,
    ) -> None:
        self.db = db
        self.now = now
        self.alive = alive
        self.prune_cursor = prune_cursor or PruneCursor()
        self.swept: list[str] = []
        """The workers that a sweep found dead."""
        self.notifies = False
        """Whether something changed that others may wait for, and that no command's type shows."""
        self._counts_by_queue: dict[str, QueueCounts] = {}

    # -- queues

    def queue_counts(self, queue: str) -> QueueCounts:
        counts = self._counts_by_queue.get(queue)
        if counts is None:
            row = self.db.execute(sql.QUEUE, (queue,)).fetchone()
            counts = self._counts_by_queue[queue] = QueueCounts(*(row or ()))
            counts.listed = row is not None
        return counts

    def moved(self, queue: str, parent: str | None, before: str | None, after: str | None) -> None:
        """Count a run's change of status (None: it is new, or gone)."""
        if before != after:
            counts = self.queue_counts(queue)
            if not counts.listed:
                self.db.execute(sql.LISTED, (queue,))
                counts.listed = True
            counts.more_queued += (after == "queued") - (before == "queued")
            if parent is None:
                counts.more_running += (after == "running") - (before == "running")
                self.notifies = self.notifies or (before == "running" and counts.frees_slots)

    def write_counts(self) -> None:
        """Write the changed counts of queues. Call it once, after the last command."""
        for name, counts in self._counts_by_queue.items():
            if counts.more_queued or counts.more_running:
                moved = {"name": name, "queued": counts.more_queued, "running": counts.more_running}
                self.db.execute(sql.MOVED, moved)

    # -- runs

    def row(self, id: str) -> RunRow | None:
        row = self.db.execute(sql.RUN_BY_ID, (id,)).fetchone()
        return RunRow(*row) if row else None

    def row_at(self, pk: int) -> RunRow:
        """Return the row of a run that exists."""
        return RunRow(*self.db.execute(sql.RUN_BY_PK, (pk,)).fetchone())

    def wake_parent(self, parent: str) -> None:
        self.db.execute(sql.WAKE_PARENT, {"parent": parent, "now": self.now})

    def next_fences(self, count: int) -> int:
        """Reserve `count` new fences and return the last."""
        return int(self.db.execute(sql.NEXT_FENCE, (count,)).fetchone()[0])

    # -- workers

    def registered(self, worker: str | None) -> Registered | None:
        """Return what a claim needs to know of a worker, or None if it is not registered."""
        row = self.db.execute(sql.REGISTERED, (worker,)).fetchone()
        return Registered(*row) if row else None

    def is_draining(self, worker: str | None) -> bool:
        found = self.registered(worker)
        return found is not None and bool(found.draining)

    # -- entries that the store itself writes

    def mark(self, row: RunRow, kind: str, value: dict[str, Any] | str, key: str = "") -> None:
        """Append an entry. Any later entry counts as progress.

        A value that is a string is already JSON.
        """
        seq = self.append(row.pk, row.fence, kind, value, key)
        self.db.execute(sql.MARK, (seq, row.pk))

    def append(
        self, run: int, fence: int, kind: str, value: dict[str, Any] | str, key: str = ""
    ) -> int:
        """Append an entry by the store itself after a command has voided the fence. Return its seq.

        The entry has the void fence. The execution that lost the run may still record this seq, and
        an entry under its own fence would pass for a repeat of that record.
        """
        text = value if isinstance(value, str) else json.dumps(value)
        values = {
            "run": run,
            "fence": -abs(fence),
            "kind": kind,
            "key": key,
            "now": self.now,
            "value": text,
        }
        return int(self.db.execute(sql.APPEND, values).fetchone()[0])
