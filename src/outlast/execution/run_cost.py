"""What a run has cost, as its journal says, and what its deaths did not make it pay again. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.codec.cost import NOTHING, Cost
from outlast.execution.journal import Journal
from outlast.store.commands import Record
from outlast.store.rows import Entry

CUT = frozenset({"death", "interruption"})
"""Entries after which another life goes on from the journal."""


class _CallCost:
    """A step and its failed attempts."""

    __slots__ = ("args", "cost", "seq")

    def __init__(self) -> None:
        self.cost = NOTHING
        self.seq: int | None = None
        """Of the step's entry; None as long as it has only failed attempts."""
        self.args: str | None = None


class RunCost:
    """The fold of a journal's costs.

    - `spent`: everything on record, also what a retry has made void: it was paid for.
    - `kept`: what the next life would not spend again. Results, recorded failures and counted attempts stay; what a retry makes
      void does not, unless its result is kept aside and used again. Steps within steps stay for good: they are looked up.
    - `saved`: the sum of `kept` at each death and each interruption. A retry, a resume and a run that wakes up go on from the
      journal too, but count for nothing here.

    What a step had spent when a death cut it off is on nobody's record: it is in none of them. Children have journals of their own.
    """

    __slots__ = ("_calls", "_salvage", "_within", "is_cut", "kept", "saved", "spent")

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.spent = self.kept = self.saved = NOTHING
        self.is_cut = False
        """Nothing has been recorded since a death or an interruption."""
        self._within = NOTHING
        self._calls: dict[str, _CallCost] = {}
        self._salvage: dict[str, _CallCost] = {}
        journal = Journal() if any(entry.kind == "retry" for entry in entries) else None
        for entry in entries:
            if journal is not None:  # only a journal knows what a retry leaves of it
                try:
                    journal.add(entry)
                except Exception:  # damaged: for those who only look, nothing of it is void
                    journal = None
            self.add(entry)
            if entry.kind == "retry" and journal is not None:
                self._void(journal)

    def add(self, entry: Entry | Record) -> None:
        """The next entry of the journal."""
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
            if entry.kind == "step" and not cost and entry.args == aside.args:  # it is used again
                aside.seq = entry.seq
                self._calls[entry.key] = aside
                return
            self._sum()
        place = self._calls.get(entry.key)
        if place is None:
            if not cost:
                return  # as of nearly all steps
            place = self._calls[entry.key] = _CallCost()
        place.cost = place.cost + cost if place.cost else cost
        self.kept += cost
        if entry.kind == "step":
            place.seq, place.args = entry.seq, entry.args

    def _void(self, journal: Journal) -> None:
        """A retry was the last entry: only what is in the journal still counts."""
        places, self._calls = self._salvage | self._calls, {}
        self._salvage = {}
        for key, place in places.items():
            placed, aside = journal.placed.get(key), journal.salvage.get(key)
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
    """None if nothing in the journal says what it cost, which is soon known."""
    return RunCost(entries) if any(entry.cost is not None for entry in entries) else None
