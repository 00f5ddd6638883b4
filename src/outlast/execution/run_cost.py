"""Sum up what a run has cost and what it saved after deaths, from its journal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.codec.cost import NOTHING, Cost
from outlast.execution.journal import Journal
from outlast.store.commands import Record
from outlast.store.rows import Entry

CUT = frozenset({"death", "interruption"})
"""Kinds of entries after which another execution continues from the journal."""


class _CallCost:
    """The cost of a step and its failed attempts."""

    __slots__ = ("args", "cost", "seq")

    def __init__(self) -> None:
        self.cost = NOTHING
        self.seq: int | None = None
        """The number of the step's entry. None as long as there are only failed attempts."""
        self.args: str | None = None


class RunCost:
    """The fold of a journal's costs.

    - `spent`: everything on record. This includes what a retry made void, since it was paid for.
    - `kept`: what the next execution would not spend again. Results, recorded failures and counted
      attempts stay. What a retry made void does not, unless its result is salvaged and reused.
      Steps within steps always stay, because they are looked up.
    - `saved`: the sum of `kept` at each death and each interruption. A retry, a resume and a run
      that wakes up also continue from the journal, but do not count here.

    What a step had spent when a death cut it off is not recorded, so it is in none of them.
    Children have their own journals.
    """

    __slots__ = ("_calls", "_salvage", "_within", "is_cut", "kept", "saved", "spent")

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.spent = self.kept = self.saved = NOTHING
        self.is_cut = False
        """True if nothing has been recorded since a death or an interruption."""
        self._within = NOTHING
        self._calls: dict[str, _CallCost] = {}
        self._salvage: dict[str, _CallCost] = {}
        journal = Journal() if any(entry.kind == "retry" for entry in entries) else None
        for entry in entries:
            if journal is not None:
                # Only a journal knows what a retry leaves of it.
                try:
                    journal.add(entry)
                except Exception:
                    # The journal is damaged. Commands that only inspect it treat nothing as void.
                    journal = None
            self.add(entry)
            if entry.kind == "retry" and journal is not None:
                self._void(journal)

    def add(self, entry: Entry | Record) -> None:
        """Add the journal's next entry to the fold."""
        self.is_cut = entry.kind in CUT
        if self.is_cut:
            self.saved += self.kept
        elif entry.kind == "inner":
            cost = Cost.read(entry.cost)
            self._within += cost
            self.spent, self.kept = self.spent + cost, self.kept + cost
        elif entry.kind in ("step", "attempt"):
            self._add(entry, Cost.read(entry.cost))

    def _add(self, entry: Entry | Record, cost: Cost) -> None:
        self.spent += cost
        aside = self._salvage.pop(entry.key, None)
        if aside is not None:
            if entry.kind == "step" and not cost and entry.args == aside.args:
                # The salvaged result is reused.
                aside.seq = entry.seq
                self._calls[entry.key] = aside
                return
            self._sum()
        place = self._calls.get(entry.key)
        if place is None:
            if not cost:
                # Nearly all steps have no cost.
                return
            place = self._calls[entry.key] = _CallCost()
        place.cost = place.cost + cost if place.cost else cost
        self.kept += cost
        if entry.kind == "step":
            place.seq = entry.seq
            place.args = entry.args

    def _void(self, journal: Journal) -> None:
        """Apply a retry, which was the last entry: only what is still in the journal counts."""
        places, self._calls = self._salvage | self._calls, {}
        self._salvage = {}
        for key, place in places.items():
            placed = journal.placed.get(key)
            aside = journal.salvage.get(key)
            if place.seq is None:
                if key in journal.attempts:
                    self._calls[key] = place
            elif placed is not None and placed.seq == place.seq:
                self._calls[key] = place
            elif aside is not None and aside.seq == place.seq:
                self._salvage[key] = place
        self._sum()

    def _sum(self) -> None:
        self.kept = self._within
        for place in (*self._calls.values(), *self._salvage.values()):
            self.kept += place.cost


def run_cost_of(entries: Sequence[Entry]) -> RunCost | None:
    """Return the cost of a journal, or None if no entry records a cost.

    The check for None is cheap.
    """
    return RunCost(entries) if any(entry.cost is not None for entry in entries) else None
