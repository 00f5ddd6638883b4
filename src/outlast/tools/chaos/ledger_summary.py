"""The book: the fold of the ledger's log into what the checks ask. What was done outside, how often, and under which fences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any


class LedgerSummary:
    """Of a whole log, line by line."""

    def __init__(self, lines: Iterable[dict[str, Any]] = ()) -> None:
        self.counts: Counter[str] = Counter()
        """Lines by what they are: act, undo, repeat, refused, asked, began."""
        self.balance: Counter[str] = Counter()
        """Of each act's key: how often it was done, less how often it was undone."""
        self.done: set[str] = set()
        """Every key under which something was done, undoings too."""
        self.of_run: dict[str, set[str]] = defaultdict(set)
        """The same by run."""
        self.twice: list[str] = []
        self.stale: list[str] = []
        self.begun: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        """Of each step of a run, by its key: attempt and fence of every time that its body began."""
        self.signs: dict[str, dict[int, float]] = defaultdict(dict)
        """Of each run, when something was first heard of it under each fence, refused or not."""
        self._telling: set[str] = set()
        self._newest: dict[str, int] = {}
        for line in lines:
            self.add(line)

    def add(self, line: dict[str, Any]) -> None:
        what, key, run, fence = line["what"], line["key"], line["run"], line["fence"]
        self.counts[what] += 1
        self.signs[run].setdefault(fence, line.get("at", 0.0))
        if what in ("act", "undo"):
            if fence < self._newest.get(run, 0):
                self.stale.append(
                    f"line {line['n']}: {what} of {run} under fence {fence}, after {self._newest[run]}"
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
                f"line {line['n']}: {key} of {line['run']} was {done} once more, under fence {line['fence']}"
            )

    def tells(self, key: str) -> bool:
        """Whether the bodies of this step, by its name, say that they begin."""
        return _name(key) in self._telling

    @property
    def redone(self) -> int:
        """Bodies of steps that began again in the same attempt."""
        return sum(
            len(times) - len({attempt for attempt, _ in times}) for times in self.begun.values()
        )


def _name(key: str) -> str:
    """Of the step at a place: `work` of `first/work#2`."""
    return key.rpartition("/")[2].partition("#")[0]
