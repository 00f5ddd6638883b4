"""Audit the effects in one journal: none acts twice, and compensations run newest first.

`EffectLog` decides what became of an effect, as it does for replay, compensation and
`outlast show`.
"""

from __future__ import annotations

import json

from outlast.execution.effects_from_journal import UNDO, EffectLog
from outlast.store.rows import Entry


class EffectAudit:
    def __init__(self) -> None:
        self.log = EffectLog(lean=True)
        self.twice: list[str] = []
        self.disorder: list[str] = []
        """Compensations that did not run newest first."""
        self.keys: set[str] = set()
        """Idempotency keys of all intents."""
        self.outcomes: dict[str, int] = {}
        """The fence under which each step's result was recorded."""
        self._confirmed: dict[str, str] = {}
        """Call sites whose effect has happened since the last retry, with its key."""
        self._closed: dict[str, int] = {}
        self._undone: list[int] = []
        """First entries of the effects compensated since the run's compensation began."""

    def add(self, entry: Entry) -> None:
        self._twice(entry)
        self._apply(entry)

    def _twice(self, entry: Entry) -> None:
        if entry.kind == "intent":
            key = str(json.loads(entry.value or "{}")["key"])
            self.keys.add(key)
            if self._confirmed.get(entry.key) == key:
                self.twice.append(
                    f"{entry.key} is intended again by entry {entry.seq}, after it was confirmed "
                    "under the same key"
                )
        elif entry.kind == "step":
            self._confirm(entry)
        elif entry.kind == "retry":
            self._confirmed.clear()
            self._closed.clear()

    def _confirm(self, entry: Entry) -> None:
        if entry.value is None:
            return
        earlier = self._closed.get(entry.key)
        if earlier is not None:
            self.twice.append(f"{entry.key} has two results: entries {earlier} and {entry.seq}")
        self._closed[entry.key] = entry.seq
        self.outcomes.setdefault(entry.key, abs(entry.fence))
        record = self.log.get(entry.key)
        if record is not None and record.intent:
            self._confirmed[entry.key] = record.key

    def _apply(self, entry: Entry) -> None:
        """Apply an entry to the effect log as `Journal` does, without keeping the entries."""
        self.log.add(entry)
        if entry.kind == "undoing":
            self._undone.clear()
        elif entry.kind == "retry":
            facts = json.loads(entry.value or "{}")
            start = None if facts.get("undoing") else self.log.cut(facts.get("from"))
            if start is not None:
                self.log.void(start)
                self._undone.clear()
        elif (
            entry.kind == "step"
            and entry.value is not None
            and entry.key.startswith(UNDO)
            and self.log.undoing
        ):
            self._undid(entry)

    def _undid(self, entry: Entry) -> None:
        record = self.log.get(entry.key[len(UNDO) :])
        if record is None:
            return
        if self._undone and self._undone[-1] < record.first:
            self.disorder.append(
                f"{record.place} (entry {record.first}) was undone after something "
                f"older (entry {self._undone[-1]})"
            )
        self._undone.append(record.first)
