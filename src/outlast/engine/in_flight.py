"""Track the runs and items this process currently holds, keyed by fence.

A suspect is a run whose last workers, two at least, died while it executed and had recorded
nothing. A suspect executes in isolation until it records something. If it kills this process too,
no other run is harmed or blamed.

No two claims share a fence, so one run or item may be held twice: when an earlier claim of it was
lost and the work it started has not ended yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outlast.store.commands import ITEM
from outlast.store.rows import RunRow

ARRIVING = -1
"""Stands for a suspect whose claim is pending."""


class InFlight:
    """The work that this process holds, and whether a suspect is isolated."""

    def __init__(self, opened: Callable[[], None]) -> None:
        self._on_isolation_ended = opened
        """Called when other work may be claimed again."""
        self.held: dict[int, RunRow] = {}
        """Everything that was claimed or started here and has not ended, by fence."""
        self.started: set[int] = set()
        """The fences of held work that executes, or whose end is being written.

        Other held work can be released as if it had never been claimed.
        """
        self.claimed_by_hand: set[int] = set()
        """Items that the program has claimed itself.

        The engine does not know what it does with them.
        """
        self.draining = False
        """Whether the process drains: nothing starts any more."""
        self.pending_claims = 0
        """Claims submitted but not yet answered."""
        self.acked = False
        """Whether items were acked here.

        The store remembers them for a while and may then forget them.
        """
        self.isolated: int | None = None
        """The fence of the isolated suspect."""
        self.yielding: set[object] = set()
        """Claimers that wait until nothing is held, to claim a suspect.

        Nothing else is claimed meanwhile.
        """

    @property
    def closed(self) -> bool:
        """Return whether claiming is suspended for a suspect."""
        return bool(self.yielding) or self.isolated is not None

    def has(self, id: str) -> bool:
        return any(row.id == id for row in self.held.values())

    def add(self, row: RunRow) -> None:
        self.held[row.fence] = row

    def start(self, fence: int) -> bool:
        """Return whether held work may start. In a drain it may not: it was released, or must be.

        The drain's first thread sets `draining` and then copies `started`. This method adds to
        `started` and then reads `draining`. Whichever is second sees what the other did.
        """
        self.started.add(fence)
        if self.draining:
            self.started.discard(fence)
            return False
        return True

    def items_by_hand(self) -> list[RunRow]:
        """Return the held items that the program has claimed itself."""
        return [
            row
            for row in list(self.held.values())
            if row.workflow == ITEM and row.fence in self.claimed_by_hand
        ]

    def release(self, fence: int) -> None:
        """Stop holding work whose end is on its way to the store.

        Its fence stays in `started`, and a drain does not release what has started. The drain's
        command would overtake the end, which would then come too late.
        """
        self.held.pop(fence, None)
        self.claimed_by_hand.discard(fence)
        self.end_isolation(fence)

    def drop(self, fence: int) -> None:
        """Forget work that has ended, was released or was lost."""
        self.release(fence)
        self.started.discard(fence)

    def is_empty(self, but: Iterable[str] = ()) -> bool:
        """Return whether nothing is held and no claim is pending, apart from the given runs."""
        aside = set(but)
        return not self.pending_claims and all(row.id in aside for row in self.held.values())

    def ancestors_held(self, parent: str | None) -> list[str]:
        """Return a run's ancestors that are held here.

        They wait for the run, so they do not break its isolation.
        """
        parents = {row.id: row.parent for row in self.held.values()}
        line: list[str] = []
        while parent is not None and parent in parents and parent not in line:
            line.append(parent)
            parent = parents[parent]
        return line

    def can_isolate(self, row: RunRow) -> bool:
        """Return whether a suspect would be alone here, or only with its ancestors."""
        line = self.ancestors_held(row.parent)
        family = self.isolated is None or (
            self.isolated in self.held and self.held[self.isolated].id in line
        )
        return family and self.is_empty(but=line)

    def reserve(self) -> None:
        """Reserve isolation for a suspect whose claim is pending."""
        if self.isolated is None:
            self.isolated = ARRIVING

    def settle_reservation(self, fence: int | None) -> None:
        """Isolate the suspect that was claimed. End the reservation if `fence` is None."""
        if self.isolated == ARRIVING:
            self.isolated = fence
            if fence is None:
                self._on_isolation_ended()
            else:
                self.yielding.clear()

    def end_isolation(self, fence: int) -> None:
        """End the isolation of a run that has left, or is no suspect any more."""
        if self.isolated == fence:
            self.isolated = None
            self._on_isolation_ended()
