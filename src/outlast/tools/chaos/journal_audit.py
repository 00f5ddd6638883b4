"""The tale of a run: the fold of its journal into what the checks ask. Pure, one entry after another, each page forgotten when it is read.

What an effect came to is asked of `EffectLog`, which is what replay, undo and `outlast show` go by.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NamedTuple

from outlast.execution.effect_log import ENDS_OF_LIVES, UNDO, EffectLog
from outlast.store.rows import ENDED, Entry, RunRow
from outlast.store.tolerant_rows import DAMAGE

VOIDING = ENDS_OF_LIVES | {"failure", "undoing", "retry", "resume", "decision"}
"""What the store writes by itself, under a fence that is void from then on."""
TIMED = frozenset({"step", "attempt", "inner", "intent", "session"})
"""The first entry of a life tells when it began to work, if it is one of these."""


class ExecutionEnd(NamedTuple):
    """A life that ended before its run."""

    kind: str
    """`death` or `interruption`."""
    seq: int
    at: float
    seen: float | None
    """The last sign of life, where somebody else had to notice."""
    fence: int
    """Of the life that ended; 0 if that is not on record."""
    why: str


class Recovery(NamedTuple):
    """From the end of one life to the next one's work."""

    end: ExecutionEnd
    seconds: float


class JournalAudit:
    """Of one run. `add` each entry, then `close` with the row."""

    def __init__(self) -> None:
        self.count = 0
        self.last_seq = 0
        self.last_at = 0.0
        self.effect_log = EffectLog(lean=True)
        self.damage: list[str] = []
        """What cannot be read, is out of order, or is missing without a reason."""
        self.twice: list[str] = []
        self.stale: list[str] = []
        self.disorder: list[str] = []
        """Compensations that were not made newest first."""
        self.keys: set[str] = set()
        """Idempotency keys of everything that was ever intended."""
        self.outcomes: dict[str, int] = {}
        """Under which fence each step's result was recorded."""
        self.ends: list[ExecutionEnd] = []
        self.recoveries: list[Recovery] = []
        self.untimed = 0
        """Ends after which nothing tells when the next life began to work."""
        self.fenced = False
        """Whether its entries tell their fences."""
        self._fence = 0
        """The highest so far, and whether it is void."""
        self._void = False
        self._holes: list[tuple[int, int]] = []
        """Missing numbers of the life that goes on: before which seq, and its fence."""
        self._confirmed: dict[str, str] = {}
        """Places whose effect has happened, since the last retry, and its key."""
        self._closed: dict[str, int] = {}
        self._undone: list[int] = []
        """Firsts of what was compensated since the run began to be undone."""
        self._waiting: ExecutionEnd | None = None
        self._delayed: set[str] = set()
        """Places whose next attempt waits for its time."""

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
        """The end of the journal. What the row says must agree with it."""
        if row.status in ENDED:
            for seq, _ in self._holes:
                self.damage.append(
                    f"an entry is missing before entry {seq}, and the life that wrote that went on to the end of the run"
                )
        if self.fenced and abs(row.fence) < self._fence:
            self.stale.append(
                f"an entry has fence {self._fence}, and the run never had more than {abs(row.fence)}"
            )
        for name, number in (("mark", row.mark), ("failed_at", row.failed_at)):
            if number is not None and number > self.last_seq:
                self.damage.append(
                    f"its {name} is entry {number}, and its last entry is {self.last_seq}"
                )

    # -- in order, and under which fence

    def _order(self, entry: Entry) -> None:
        if entry.seq <= self.last_seq:
            self.damage.append(f"entry {entry.seq} comes after entry {self.last_seq}")
        elif entry.seq > self.last_seq + 1:
            self._holes.append((entry.seq, abs(entry.fence)))
        if entry.kind in ENDS_OF_LIVES or (
            self._holes and abs(entry.fence) > self._holes[-1][1] > 0
        ):
            # A life that loses a write to the store ends, though what it had sent after it may be there.
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
                    f"{entry.key} is intended again by entry {entry.seq}, after it was confirmed under the same key"
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
        """As `Journal` does it, without keeping the entries."""
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
                f"{effect_record.place} (entry {effect_record.first}) was undone after something older (entry {self._undone[-1]})"
            )
        self._undone.append(effect_record.first)

    # -- how soon it went on

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
        if (
            entry.kind not in TIMED or waits
        ):  # a timer, a message, an act that may still be under way: it may have waited for that
            self.untimed += 1
            return
        began = entry.at - (entry.seconds or 0.0)
        self.recoveries.append(Recovery(end, max(0.0, began - (end.seen or end.at))))


def _end(entry: Entry) -> ExecutionEnd:
    said: Any = {}
    with suppress(ValueError, RecursionError):  # the rest of the entry says enough
        said = json.loads(entry.value or "{}")
    if not isinstance(said, dict):
        said = {}
    seen = said.get("seen")
    return ExecutionEnd(
        entry.kind, entry.seq, entry.at, float(seen) if isinstance(seen, (int, float)) else None, abs(entry.fence),
        str(said.get("why", "")),
    )  # fmt: skip
