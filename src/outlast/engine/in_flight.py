"""The room: what this process has in hand, and whether a suspect has it to itself.

A suspect is a run whose last workers died, two at least, while it executed and had recorded nothing. It executes alone until it
has: if it kills this process too, nobody else is harmed or blamed.

What is in hand is known by its fence, which no two claims share: one run or item may be in hand twice, when an earlier claim of
it was lost and what it began has not ended yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outlast.store.commands import ITEM
from outlast.store.rows import RunRow

ARRIVING = -1
"""Stands for a suspect that is being claimed."""


class InFlight:
    def __init__(self, opened: Callable[[], None]) -> None:
        self._on_isolation_ended = opened
        """Called when others may come in again."""
        self.held: dict[int, RunRow] = {}
        """Everything that was claimed or started here and has not ended, by its fence."""
        self.started: set[int] = set()
        """Those of them that execute, or whose end is being written. The others can be given back as if nobody had had them."""
        self.claimed_by_hand: set[int] = set()
        """Items that a program has claimed itself: nobody here knows what it does with them."""
        self.draining = False
        """Nothing begins any more."""
        self.pending_claims = 0
        """Claims on their way: nobody knows yet what they bring."""
        self.acked = False
        """Items were acked here, which the store remembers for a while and then may forget."""
        self.isolated: int | None = None
        """The suspect that has the room to itself."""
        self.yielding: set[object] = set()
        """Claimers that want the hands empty for a suspect of theirs: nothing more is claimed, by nobody here."""

    @property
    def closed(self) -> bool:
        """Nothing may be claimed now."""
        return bool(self.yielding) or self.isolated is not None

    def has(self, id: str) -> bool:
        return any(row.id == id for row in self.held.values())

    def add(self, row: RunRow) -> None:
        self.held[row.fence] = row

    def start(self, fence: int) -> bool:
        """Whether something in hand may begin. Not in a drain: then it has been given back, or must be.

        The drain's first thread sets `draining` and then copies `begun`, this adds and then looks: whoever is second sees what
        the other did.
        """
        self.started.add(fence)
        if self.draining:
            self.started.discard(fence)
            return False
        return True

    def items_by_hand(self) -> list[RunRow]:
        """Items in the hands of a program that claimed them itself."""
        return [
            row
            for row in list(self.held.values())
            if row.workflow == ITEM and row.fence in self.claimed_by_hand
        ]

    def release(self, fence: int) -> None:
        """It has ended, and how is on its way to the store. A drain gives nothing back that has begun: its command overtakes that one, which would come too late."""
        self.held.pop(fence, None)
        self.claimed_by_hand.discard(fence)
        self.end_isolation(fence)

    def drop(self, fence: int) -> None:
        """It has ended, was given back, or was lost."""
        self.release(fence)
        self.started.discard(fence)

    def is_empty(self, but: Iterable[str] = ()) -> bool:
        """Whether nothing is in hand or on its way, some runs aside."""
        aside = set(but)
        return not self.pending_claims and all(row.id in aside for row in self.held.values())

    def ancestors_held(self, parent: str | None) -> list[str]:
        """A run's ancestors that are in hand: they wait for it, and are no company."""
        parents = {row.id: row.parent for row in self.held.values()}
        line: list[str] = []
        while parent is not None and parent in parents and parent not in line:
            line.append(parent)
            parent = parents[parent]
        return line

    def can_isolate(self, row: RunRow) -> bool:
        """Whether a suspect would have the room to itself, or share it with its ancestors only."""
        line = self.ancestors_held(row.parent)
        family = self.isolated is None or (
            self.isolated in self.held and self.held[self.isolated].id in line
        )
        return family and self.is_empty(but=line)

    def reserve(self) -> None:
        """A suspect is being claimed."""
        if self.isolated is None:
            self.isolated = ARRIVING

    def settle_reservation(self, fence: int | None) -> None:
        """What came of it; None if nothing did."""
        if self.isolated == ARRIVING:
            self.isolated = fence
            if fence is None:
                self._on_isolation_ended()
            else:
                self.yielding.clear()

    def end_isolation(self, fence: int) -> None:
        """A suspect has left, or is none any more."""
        if self.isolated == fence:
            self.isolated = None
            self._on_isolation_ended()
