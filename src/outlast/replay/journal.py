"""A journal as replay sees it: what will be delivered, what is looked up, and what a retry has made void."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from outlast.store.rows import Entry

PLACED = frozenset({"step", "child"})
"""Entries that answer a place a call has taken."""
DELIVERED = PLACED | {"fired", "message", "cancel"}
MOVING = frozenset({"death", "interruption", "retry", "resume"})
"""Entries that only move the run's clock."""


class Attempts(NamedTuple):
    count: int  # type: ignore[assignment]
    due: float
    """When the next may start."""


class Journal:
    """The fold of a run's entries. Entries leave it as they are delivered, so that it shrinks to nothing."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.last_seq = 0
        self.pending: deque[Entry] = deque()
        self.placed: dict[str, Entry] = {}
        self.attempts: dict[str, Attempts] = {}
        self.inner: dict[str, Entry] = {}
        self.salvage: dict[str, Entry] = {}
        """Results that a retry made void but need not be computed again, by key."""
        self.voided: set[str] = set()
        self.taken: set[int] = set()
        """Numbers of the messages that are in the journal."""
        for entry in entries:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        self.last_seq = entry.seq
        if entry.kind in DELIVERED or entry.kind in MOVING:
            self.pending.append(entry)
        if entry.kind in PLACED:
            self.placed[entry.key] = entry
            self.salvage.pop(entry.key, None)
        elif entry.kind == "attempt":
            self.attempts[entry.key] = Attempts(entry.attempt or 0, float(entry.value or 0))
        elif entry.kind == "inner":
            self.inner[entry.key] = entry
        elif entry.kind == "message":
            self.taken.add(int(entry.value or 0))
        elif entry.kind == "retry":
            start = json.loads(entry.value or "{}").get("from")
            if start is not None:
                self._void(start)

    def _void(self, start: int) -> None:
        void = [entry for entry in self.pending if entry.seq >= start and entry.kind in DELIVERED]
        self.pending = deque(entry for entry in self.pending if entry.seq < start or entry.kind in MOVING)
        for entry in void:
            self.voided.add(entry.key)
            self.attempts.pop(entry.key, None)
            if entry.kind == "message":
                if entry.seq != start:  # the one that ended the run stays taken: it would only end it again
                    self.taken.discard(int(entry.value or 0))
            elif entry.kind in PLACED:
                del self.placed[entry.key]
                if entry.error is None:
                    self.salvage[entry.key] = entry
