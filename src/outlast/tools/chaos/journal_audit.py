"""Fold the journal of a run into the facts that the checks need.

The fold is pure and takes one entry at a time, so no page needs to stay in memory.
"""

from __future__ import annotations

from outlast.execution.effects_from_journal import ENDS_OF_LIVES
from outlast.store.rows import ENDED, Entry, RunRow
from outlast.store.tolerant_rows import DAMAGE
from outlast.tools.chaos.effect_audit import EffectAudit
from outlast.tools.chaos.recovery_times import VOIDING, RecoveryTimes


class FenceAudit:
    """Find entries that were written under an old or void fence."""

    def __init__(self) -> None:
        self.stale: list[str] = []
        self.fenced = False
        """Whether the entries carry fences."""
        self._fence = 0
        """The highest fence so far. `_void` says whether it is void."""
        self._void = False

    def add(self, entry: Entry) -> None:
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
            self._fence = fence
            self._void = False
        if entry.fence < 0 or entry.kind in VOIDING:
            self._void = True

    def close(self, row: RunRow) -> None:
        """Check that the run ever had the highest fence."""
        if self.fenced and abs(row.fence) < self._fence:
            self.stale.append(
                f"an entry has fence {self._fence}, and the run never had more than "
                f"{abs(row.fence)}"
            )


class JournalAudit:
    """Audit the journal of one run. `add` each entry, then `close` with the row."""

    def __init__(self) -> None:
        self.count = 0
        self.last_seq = 0
        self.last_at = 0.0
        self.damage: list[str] = []
        """Entries that cannot be read, are out of order, or are missing without a reason."""
        self.fences = FenceAudit()
        self.effects = EffectAudit()
        self.times = RecoveryTimes()
        self._holes: list[tuple[int, int]] = []
        """Gaps in the entries of the current execution: the seq after the gap, and its fence."""

    def add(self, entry: Entry) -> None:
        try:
            self._order(entry)
            self.fences.add(entry)
            self.times.add(entry, self.effects.log)
            self.effects.add(entry)
        except DAMAGE as error:
            self.damage.append(f"entry {entry.seq} ({entry.kind}) cannot be read: {error!r}")
        self.count += 1
        self.last_seq = entry.seq
        self.last_at = entry.at

    def close(self, row: RunRow) -> None:
        """End the audit and check that the row agrees with the journal."""
        if row.status in ENDED:
            for seq, _ in self._holes:
                self.damage.append(
                    f"an entry is missing before entry {seq}, and the execution that wrote it "
                    "continued to the end of the run"
                )
        self.fences.close(row)
        for name, number in (("mark", row.mark), ("failed_at", row.failed_at)):
            if number is not None and number > self.last_seq:
                self.damage.append(
                    f"its {name} is entry {number}, and its last entry is {self.last_seq}"
                )

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
