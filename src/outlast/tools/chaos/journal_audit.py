"""Fold the journal of a run into the facts that the checks need.

The fold is pure and takes one entry at a time, so no page needs to stay in memory. `EffectLog`
decides what became of an effect, as it does for replay, compensation and `outlast show`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NamedTuple

from outlast.execution.effect_log import ENDS_OF_LIVES, UNDO, EffectLog
from outlast.store.rows import ENDED, Entry, RunRow
from outlast.store.tolerant_rows import DAMAGE

VOIDING = ENDS_OF_LIVES | {"failure", "undoing", "retry", "resume", "decision"}
"""Entries that the store writes by itself. The entry's fence is void from then on."""
TIMED = frozenset({"step", "attempt", "inner", "intent", "session"})
"""Kinds that tell when an execution began to work, if its first entry is one of them."""


class ExecutionEnd(NamedTuple):
    """The end of a run execution that ended before its run."""

    kind: str
    """`death` or `interruption`."""
    seq: int
    at: float
    seen: float | None
    """The last sign of life, if another worker had to notice the end."""
    fence: int
    """Fence of the execution that ended. 0 if it is not on record."""
    why: str


class Recovery(NamedTuple):
    """The time from the end of one execution to the work of the next."""

    end: ExecutionEnd
    seconds: float


class JournalAudit:
    """Audit the journal of one run. `add` each entry, then `close` with the row."""

    def __init__(self) -> None:
        self.count = 0
        self.last_seq = 0
        self.last_at = 0.0
        self.effect_log = EffectLog(lean=True)
        self.damage: list[str] = []
        """Entries that cannot be read, are out of order, or are missing without a reason."""
        self.twice: list[str] = []
        self.stale: list[str] = []
        self.disorder: list[str] = []
        """Compensations that did not run newest first."""
        self.keys: set[str] = set()
        """Idempotency keys of all intents."""
        self.outcomes: dict[str, int] = {}
        """The fence under which each step's result was recorded."""
        self.ends: list[ExecutionEnd] = []
        self.recoveries: list[Recovery] = []
        self.untimed = 0
        """Ends after which no entry tells when the next execution began to work."""
        self.fenced = False
        """Whether the entries carry fences."""
        self._fence = 0
        """The highest fence so far. `_void` says whether it is void."""
        self._void = False
        self._holes: list[tuple[int, int]] = []
        """Gaps in the entries of the current execution: the seq after the gap, and its fence."""
        self._confirmed: dict[str, str] = {}
        """Call sites whose effect has happened since the last retry, with its key."""
        self._closed: dict[str, int] = {}
        self._undone: list[int] = []
        """First entries of the effects compensated since the run's compensation began."""
        self._waiting: ExecutionEnd | None = None
        self._delayed: set[str] = set()
        """Call sites whose next attempt is delayed."""

    def add(self, entry: Entry) -> None:
        try:
            self._order(entry)
            self._stale(entry)
            self._time(entry)
            self._twice(entry)
            self._add_effect(entry)
        except DAMAGE as error:
            self.damage.append(f"entry {entry.seq} ({entry.kind}) cannot be read: {error!r}")
        self.count += 1
        self.last_seq, self.last_at = entry.seq, entry.at

    def close(self, row: RunRow) -> None:
        """End the audit and check that the row agrees with the journal."""
        if row.status in ENDED:
            for seq, _ in self._holes:
                self.damage.append(
                    f"an entry is missing before entry {seq}, and the life that wrote that went on "
                    "to the end of the run"
                )
        if self.fenced and abs(row.fence) < self._fence:
            self.stale.append(
                f"an entry has fence {self._fence}, and the run never had more than "
                f"{abs(row.fence)}"
            )
        for name, number in (("mark", row.mark), ("failed_at", row.failed_at)):
            if number is not None and number > self.last_seq:
                self.damage.append(
                    f"its {name} is entry {number}, and its last entry is {self.last_seq}"
                )

    # -- order and fences

    def _order(self, entry: Entry) -> None:
        if entry.seq <= self.last_seq:
            self.damage.append(f"entry {entry.seq} comes after entry {self.last_seq}")
        elif entry.seq > self.last_seq + 1:
            self._holes.append((entry.seq, abs(entry.fence)))
        if entry.kind in ENDS_OF_LIVES or (
            self._holes and abs(entry.fence) > self._holes[-1][1] > 0
        ):
            # An execution that loses a write to the store ends, but entries it sent later may
            # exist.
            self._holes.clear()

    def _stale(self, entry: Entry) -> None:
        fence = abs(entry.fence)
        if not fence:
            return
        self.fenced = True
        if fence < self._fence:
            self.stale.append(
                f"entry {entry.seq} ({entry.kind}) has fence {fence}, after one with {self._fence}"
            )
        elif entry.fence > 0 and fence == self._fence and self._void:
            self.stale.append(
                f"entry {entry.seq} ({entry.kind}) has fence {fence}, which was void by then"
            )
        if fence > self._fence:
            self._fence, self._void = fence, False
        if entry.fence < 0 or entry.kind in VOIDING:
            self._void = True

    # -- effects

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
        effect_record = self.effect_log.get(entry.key)
        if effect_record is not None and effect_record.intent:
            self._confirmed[entry.key] = effect_record.key

    def _add_effect(self, entry: Entry) -> None:
        """Apply an entry to the effect log as `Journal` does, without keeping the entries."""
        self.effect_log.add(entry)
        if entry.kind == "undoing":
            self._undone.clear()
        elif entry.kind == "retry":
            said = json.loads(entry.value or "{}")
            start = None if said.get("undoing") else self.effect_log.cut(said.get("from"))
            if start is not None:
                self.effect_log.void(start)
                self._undone.clear()
        elif (
            entry.kind == "step"
            and entry.value is not None
            and entry.key.startswith(UNDO)
            and self.effect_log.undoing
        ):
            self._undid(entry)

    def _undid(self, entry: Entry) -> None:
        effect_record = self.effect_log.get(entry.key[len(UNDO) :])
        if effect_record is None:
            return
        if self._undone and self._undone[-1] < effect_record.first:
            self.disorder.append(
                f"{effect_record.place} (entry {effect_record.first}) was undone after something "
                f"older (entry {self._undone[-1]})"
            )
        self._undone.append(effect_record.first)

    # -- recovery times

    def _time(self, entry: Entry) -> None:
        if entry.kind in ENDS_OF_LIVES:
            if self._waiting is not None:
                self.untimed += 1
            self._waiting = _end(entry)
            self.ends.append(self._waiting)
            return
        if entry.kind == "attempt":
            self._delayed.add(entry.key)
        if self._waiting is None or entry.kind in VOIDING:
            return
        end, self._waiting = self._waiting, None
        effect_record = self.effect_log.get(entry.key)
        waits = (effect_record is not None and effect_record.open) or (
            entry.key in self._delayed and entry.kind != "intent"
        )
        # The execution may have waited for a timer, a message, or an effect still in flight.
        if entry.kind not in TIMED or waits:
            self.untimed += 1
            return
        began = entry.at - (entry.seconds or 0.0)
        self.recoveries.append(Recovery(end, max(0.0, began - (end.seen or end.at))))


def _end(entry: Entry) -> ExecutionEnd:
    said: Any = {}
    # The rest of the entry says enough.
    with suppress(ValueError, RecursionError):
        said = json.loads(entry.value or "{}")
    if not isinstance(said, dict):
        said = {}
    seen = said.get("seen")
    return ExecutionEnd(
        entry.kind,
        entry.seq,
        entry.at,
        float(seen) if isinstance(seen, (int, float)) else None,
        abs(entry.fence),
        str(said.get("why", "")),
    )
