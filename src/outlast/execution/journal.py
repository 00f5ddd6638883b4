"""Fold a journal for replay.

The fold knows which entries to deliver, which to look up, and which a retry made void.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from outlast.execution.effects_from_journal import UNDO, EffectLog
from outlast.store.rows import Entry

PLACED = frozenset({"step", "child", "compensation", "session", "publish"})
"""Kinds of entries that answer a call site."""
DELIVERED = PLACED | {"intent", "fired", "message", "cancel"}
POSTPONED = "postponed: "
"""How the arguments of the `attempt` entry of a postponed step begin. The reason follows."""
MOVING = frozenset({"death", "interruption", "retry", "resume", "decision"})
"""Kinds of entries that only advance the run's clock."""


class Attempts(NamedTuple):
    count: int  # type: ignore[assignment]
    due: float
    """When the next attempt may start."""
    postponed: bool = False
    """Whether the step ended without using up an attempt."""


class Journal:
    """The fold of a run's entries. Delivered entries leave it, so it shrinks to nothing."""

    def __init__(self, entries: Iterable[Entry] = (), *, lean: bool = False) -> None:
        self.last_seq = 0
        self.pending: deque[Entry] = deque()
        self.placed: dict[str, Entry] = {}
        self.attempts: dict[str, Attempts] = {}
        self.inner: dict[str, Entry] = {}
        self.salvage: dict[str, Entry] = {}
        """Results that a retry made void but that need not be computed again, by key."""
        self.voided: set[str] = set()
        self.retried: float | None = None
        """When the run was last retried."""
        self.taken: set[int] = set()
        """The numbers of the messages that are in the journal."""
        self.effect_log = EffectLog(lean=lean)
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        self.last_seq = entry.seq
        self.effect_log.add(entry)
        if entry.kind in DELIVERED or entry.kind in MOVING:
            self.pending.append(entry)
        if entry.kind in PLACED:
            self.placed[entry.key] = entry
            self.salvage.pop(entry.key, None)
        elif entry.kind == "attempt":
            postponed = (entry.args or "").startswith(POSTPONED)
            self.attempts[entry.key] = Attempts(
                entry.attempt or 0, float(entry.value or 0), postponed
            )
        elif entry.kind == "inner":
            self.inner[entry.key] = entry
        elif entry.kind == "message":
            self.taken.add(int(entry.value or 0))
        elif entry.kind == "retry":
            retry = json.loads(entry.value or "{}")
            self.retried = entry.at
            # A compensation that has not ended continues where it was.
            start = None if retry.get("undoing") else self.effect_log.cut(retry.get("from"))
            if start is not None:
                self._void(start, retry.get("from"))

    def _void(self, start: int, ended_by: int | None) -> None:
        """Void the entries from `start` on.

        `ended_by` is the number of the entry that ended the run, if one did.
        """
        void = [entry for entry in self.pending if entry.seq >= start and entry.kind in DELIVERED]
        # Of the entries that advance the clock, only the retry stays: no time has passed for the
        # run since.
        self.pending = deque(
            entry for entry in self.pending if entry.seq < start or entry.seq == self.last_seq
        )
        for entry in void:
            self.voided.add(entry.key)
            self.attempts.pop(entry.key, None)
            if entry.kind == "message":
                if entry.seq != ended_by:
                    # Take the message again, except the one that ended the run: it would only end
                    # it again.
                    self.taken.discard(int(entry.value or 0))
            elif entry.kind in PLACED:
                self.placed.pop(entry.key, None)
                effect_record = self.effect_log.get(entry.key)
                undone = (
                    effect_record is not None
                    and effect_record.undone is not None
                    and effect_record.undone >= start
                )
                refused = entry.kind == "session" and (entry.value or "").startswith('{"refused"')
                if (
                    entry.error is None
                    and not undone
                    and not refused
                    and not entry.key.startswith(UNDO)
                ):
                    self.salvage[entry.key] = entry
        self.effect_log.void(start)

    def begin_undo(self) -> None:
        """Keep only the entries since the run's compensation began. Only those are replayed."""
        start = self.effect_log.undoing
        assert start is not None, "a run in undoing has an entry that says so"
        self.pending = deque(entry for entry in self.pending if entry.seq > start)
        self.placed = {entry.key: entry for entry in self.pending if entry.kind in PLACED}
        self.salvage.clear()
