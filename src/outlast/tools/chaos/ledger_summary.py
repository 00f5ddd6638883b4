"""Fold the ledger's log into the facts that the checks need.

These are what was done outside, how often, and under which fences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any


class LedgerSummary:
    """Summarize a whole log, line by line."""

    def __init__(self, lines: Iterable[dict[str, Any]] = ()) -> None:
        self.counts: Counter[str] = Counter()
        """Lines by kind: act, undo, repeat, refused, asked, began."""
        self.balance: Counter[str] = Counter()
        """For each act's key: how often it was done minus how often it was undone."""
        self.done: set[str] = set()
        """Every key under which something was done, including compensations."""
        self.of_run: dict[str, set[str]] = defaultdict(set)
        """The keys in `done`, by run."""
        self.twice: list[str] = []
        self.stale: list[str] = []
        self.begun: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        """For each run and step key: attempt and fence of every time the step's body began."""
        self.signs: dict[str, dict[int, float]] = defaultdict(dict)
        """For each run and fence: when the first request arrived, refused or not."""
        self._telling: set[str] = set()
        self._newest: dict[str, int] = {}
        for line in lines:
            self.add(line)

    def add(self, line: dict[str, Any]) -> None:
        what = line["what"]
        key = line["key"]
        run = line["run"]
        fence = line["fence"]
        self.counts[what] += 1
        self.signs[run].setdefault(fence, line.get("at", 0.0))
        if what in ("act", "undo"):
            if fence < self._newest.get(run, 0):
                self.stale.append(
                    f"line {line['n']}: {what} of {run} under fence {fence}, after "
                    f"{self._newest[run]}"
                )
            self.done.add(key)
            self.of_run[run].add(key)
            self._weigh(line)
        elif what == "began":
            self.begun[run, key].append((line["attempt"], fence))
            self._telling.add(_name(key))
        if what != "refused":
            self._newest[run] = max(self._newest.get(run, 0), fence)

    def _weigh(self, line: dict[str, Any]) -> None:
        act = line["what"] == "act"
        key = line["key"] if act else line["undoes"]
        self.balance[key] += 1 if act else -1
        if not 0 <= self.balance[key] <= 1:
            done = "done" if act else "undone"
            self.twice.append(
                f"line {line['n']}: {key} of {line['run']} was {done} once more, under fence "
                f"{line['fence']}"
            )

    def reports(self, key: str) -> bool:
        """Return whether the bodies of this step, by its name, report that they begin."""
        return _name(key) in self._telling

    @property
    def redone(self) -> int:
        """Return how many step bodies began again in the same attempt."""
        return sum(
            len(times) - len({attempt for attempt, _ in times}) for times in self.begun.values()
        )


def _name(key: str) -> str:
    """Return the name of the step at a call site: `work` for `first/work#2`."""
    return key.rpartition("/")[2].partition("#")[0]
