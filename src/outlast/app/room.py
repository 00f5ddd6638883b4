"""The room: what this process has in hand, and whether a suspect has it to itself.

A suspect is a run whose last workers died, two at least, while it executed and had recorded nothing. It executes alone until it
has: if it kills this process too, nobody else is harmed or blamed.

What is in hand is known by its fence, which no two claims share: one run or item may be in hand twice, when an earlier claim of
it was lost and what it began has not ended yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outlast.store.rows import RunRow
from outlast.store.verbs import ITEM

ARRIVING = -1
"""Stands for a suspect that is being claimed."""


class Room:
    def __init__(self, opened: Callable[[], None]) -> None:
        self._opened = opened
        """Called when others may come in again."""
        self.hands: dict[int, RunRow] = {}
        """Everything that was claimed or started here and has not ended, by its fence."""
        self.begun: set[int] = set()
        """Those of them that execute, or whose end is being written. The others can be given back as if nobody had had them."""
        self.by_hand: set[int] = set()
        """Items that a program has claimed itself: nobody here knows what it does with them."""
        self.draining = False
        """Nothing begins any more."""
        self.coming = 0
        """Claims on their way: nobody knows yet what they bring."""
        self.acked = False
        """Items were acked here, which the store remembers for a while and then may forget."""
        self.alone: int | None = None
        """The suspect that has the room to itself."""
        self.yielding: set[object] = set()
        """Claimers that want the hands empty for a suspect of theirs: nothing more is claimed, by nobody here."""

    @property
    def closed(self) -> bool:
        """Nothing may be claimed now."""
        return bool(self.yielding) or self.alone is not None

    def has(self, id: str) -> bool:
        return any(row.id == id for row in self.hands.values())

    def add(self, row: RunRow) -> None:
        self.hands[row.fence] = row

    def begin(self, fence: int) -> bool:
        """Whether something in hand may begin. Not in a drain: then it has been given back, or must be.

        The drain's first thread sets `draining` and then copies `begun`, this adds and then looks: whoever is second sees what
        the other did.
        """
        self.begun.add(fence)
        if self.draining:
            self.begun.discard(fence)
            return False
        return True

    def items_by_hand(self) -> list[RunRow]:
        """Items in the hands of a program that claimed them itself."""
        return [
            row for row in list(self.hands.values()) if row.workflow == ITEM and row.fence in self.by_hand
        ]

    def let_go(self, fence: int) -> None:
        """It has ended, and how is on its way to the store. A drain gives nothing back that has begun: its verb overtakes that one, which would come too late."""
        self.hands.pop(fence, None)
        self.by_hand.discard(fence)
        self.open(fence)

    def drop(self, fence: int) -> None:
        """It has ended, was given back, or was lost."""
        self.let_go(fence)
        self.begun.discard(fence)

    def is_empty(self, but: Iterable[str] = ()) -> bool:
        """Whether nothing is in hand or on its way, some runs aside."""
        aside = set(but)
        return not self.coming and all(row.id in aside for row in self.hands.values())

    def line(self, parent: str | None) -> list[str]:
        """A run's ancestors that are in hand: they wait for it, and are no company."""
        parents = {row.id: row.parent for row in self.hands.values()}
        line: list[str] = []
        while parent is not None and parent in parents and parent not in line:
            line.append(parent)
            parent = parents[parent]
        return line

    def fits(self, row: RunRow) -> bool:
        """Whether a suspect would have the room to itself, or share it with its ancestors only."""
        line = self.line(row.parent)
        family = self.alone is None or (self.alone in self.hands and self.hands[self.alone].id in line)
        return family and self.is_empty(but=line)

    def reserve(self) -> None:
        """A suspect is being claimed."""
        if self.alone is None:
            self.alone = ARRIVING

    def take(self, fence: int | None) -> None:
        """What came of it; None if nothing did."""
        if self.alone == ARRIVING:
            self.alone = fence
            if fence is None:
                self._opened()
            else:
                self.yielding.clear()

    def open(self, fence: int) -> None:
        """A suspect has left, or is none any more."""
        if self.alone == fence:
            self.alone = None
            self._opened()
