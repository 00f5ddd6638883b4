"""Track everything this process has in flight: runs, items and batches, keyed by fence.

A fence is unique in its store, so it identifies one claim. The same run or item may be held twice:
after a lost lease, an earlier claim may still execute while a new one waits.

Only the event loop writes the registry. Other threads read copies. There is no lock, because the
garbage collector may call `drop` inside any section that would be locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from outlast.store.rows import RunRow

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution


class HeldState(Enum):
    """What this process does with one claim."""

    CLAIMED = "claimed"
    """Nothing has started: a drain releases it as if it had never been claimed."""
    STARTED = "started"
    """It executes, or its end is not submitted yet."""
    BY_HAND = "by hand"
    """The program claimed this item itself. The engine does not know what it does with it."""
    ENDING = "ending"
    """Its end is being written, or the claim was lost. Its code may still execute.

    It is no longer held, but a drain must not release it: the drain's command would overtake the
    end, which would then be refused.
    """
    HUNG = "hung"
    """The engine closed while it still executes, so it is not released."""


_NOT_RELEASED_BY_A_DRAIN = frozenset(HeldState) - {HeldState.CLAIMED}


class SlotOwner(Protocol):
    """A claimer, which counts the slots that its claims use."""

    def take_slot(self, *, returned: bool) -> None: ...

    def free_slot(self, *, returned: bool) -> None: ...


class Held:
    """One claim of this process."""

    __slots__ = ("row", "slot", "state")

    def __init__(self, row: RunRow, slot: SlotOwner | None) -> None:
        self.row = row
        self.state = HeldState.CLAIMED
        self.slot = slot
        """The claimer whose slot it uses, until the slot is released."""


class InFlight:
    """The registry of what this process has in flight."""

    def __init__(self, on_hung_ended: Callable[[], None] = lambda: None) -> None:
        self._on_released: Callable[[int], None] = lambda _: None
        self._on_hung_ended = on_hung_ended
        """Called when hung work has ended."""
        self._claims: dict[int, Held] = {}
        self.executions: dict[str, RunExecution] = {}
        """The executions of this process, by run id."""
        self.pending_claims = 0
        """Claims submitted but not yet answered."""
        self.draining = False
        """Whether the process drains or closes: nothing more starts."""

    def on_released(self, callback: Callable[[int], None]) -> None:
        """Call `callback` with every fence that is no longer held, or turns out not to be."""
        self._on_released = callback

    def add_execution(self, execution: RunExecution) -> None:
        """Register the execution of a held run."""
        self.executions[execution.id] = execution

    def remove_execution(self, execution: RunExecution) -> None:
        """Forget an execution that has ended. A later execution of the same run stays."""
        if self.executions.get(execution.id) is execution:
            del self.executions[execution.id]

    # -- one claim, from its answer to its end

    def claim_submitted(self) -> None:
        """Count a command that may give work to this process."""
        self.pending_claims += 1

    def claim_answered(self, rows: Iterable[RunRow], slot: SlotOwner | None = None) -> None:
        """Hold what a claim brought. Each row uses a slot of `slot`, if given."""
        self.pending_claims -= 1
        for row in rows:
            self._claims[row.fence] = Held(row, slot)
            if slot is not None:
                slot.take_slot(returned=row.interrupted is not None)

    def start(self, fence: int, *, by_hand: bool = False) -> bool:
        """Return whether held work may start. In a drain it may not: it was released, or must be.

        `begin_drain` sets `draining` and then reads the states, in another thread. This method sets
        the state and then reads `draining`. Whichever is second sees what the other did.
        """
        held = self._claims.get(fence)
        if held is not None:
            held.state = HeldState.BY_HAND if by_hand else HeldState.STARTED
        if self.draining:
            if held is not None:
                held.state = HeldState.CLAIMED
            return False
        return True

    def ending(self, fence: int) -> None:
        """Stop holding work whose end is on its way to the store. It keeps its slot."""
        held = self._claims.get(fence)
        if held is not None:
            was, held.state = held.state, HeldState.ENDING
            if was is HeldState.HUNG:
                self._on_hung_ended()
        self._on_released(fence)

    def hang(self, row: RunRow) -> None:
        """Note that work still executes although the engine closes or its claim was lost."""
        held = self._claims.get(row.fence)
        if held is None:
            held = self._claims[row.fence] = Held(row, None)
        held.state = HeldState.HUNG

    def release_slot(self, fence: int) -> None:
        """Let the claimer use the slot of this claim again. A repeat is harmless."""
        held = self._claims.get(fence)
        if held is not None:
            _free_slot(held)

    def drop(self, fence: int) -> HeldState | None:
        """Forget work that has ended, was released or was lost, and free its slot.

        Return the state that it was in, or None if it was not in flight.
        """
        held = self._claims.pop(fence, None)
        self._on_released(fence)
        if held is None:
            return None
        _free_slot(held)
        if held.state is HeldState.HUNG:
            self._on_hung_ended()
        return held.state

    def lose(self, worker: str) -> None:
        """Stop holding what a worker id that was declared dead had claimed.

        Claims whose code may still execute stay registered as ending until it has ended. The
        executions of lost runs are evicted by the caller.
        """
        for fence, held in list(self._claims.items()):
            if held.row.worker != worker or held.row.id in self.executions:
                continue
            if held.state is HeldState.STARTED:
                self.ending(fence)
            elif held.state in (HeldState.CLAIMED, HeldState.BY_HAND):
                self.drop(fence)

    # -- in any thread

    def begin_drain(self) -> tuple[int, ...]:
        """Let nothing start from now on. Return the fences that a drain must not release."""
        self.draining = True
        # A copy is one C call. An iteration would fail if the loop's thread changes the registry.
        return tuple(
            fence
            for fence, held in self._claims.copy().items()
            if held.state in _NOT_RELEASED_BY_A_DRAIN
        )

    def held(self) -> list[RunRow]:
        """Return the rows that this process holds."""
        return [
            held.row for held in self._claims.copy().values() if held.state is not HeldState.ENDING
        ]

    def in_state(self, state: HeldState) -> list[RunRow]:
        """Return the rows of all claims in one state."""
        return [held.row for held in self._claims.copy().values() if held.state is state]

    def hung_ids(self) -> set[str]:
        """Return the ids of the runs, items and batches that still execute after the close."""
        return {row.id for row in self.in_state(HeldState.HUNG)}

    # -- questions

    def state(self, fence: int) -> HeldState | None:
        """Return the state of a claim, or None if it is not in flight."""
        held = self._claims.get(fence)
        return None if held is None else held.state

    def is_hung(self, fence: int) -> bool:
        """Return whether the work of this claim still executes although it was given up."""
        return self.state(fence) is HeldState.HUNG

    def row(self, fence: int) -> RunRow | None:
        """Return the row of a claim, or None if this process does not hold it."""
        held = self._claims.get(fence)
        return None if held is None or held.state is HeldState.ENDING else held.row

    def is_held(self, fence: int) -> bool:
        """Return whether this process holds the claim: it is in flight and does not end."""
        return self.row(fence) is not None

    def holds_run(self, id: str) -> bool:
        """Return whether this process holds a claim of this run, item or batch."""
        return any(row.id == id for row in self.held())

    def is_empty(self, but: Iterable[str] = ()) -> bool:
        """Return whether nothing is held and no claim is pending, apart from the given runs."""
        aside = set(but)
        return not self.pending_claims and all(row.id in aside for row in self.held())

    def ancestors_held(self, parent: str | None) -> list[str]:
        """Return the ids of a run's ancestors that are held here, nearest first."""
        parents = {row.id: row.parent for row in self.held()}
        ancestors: list[str] = []
        while parent is not None and parent in parents and parent not in ancestors:
            ancestors.append(parent)
            parent = parents[parent]
        return ancestors


def _free_slot(held: Held) -> None:
    slot, held.slot = held.slot, None
    if slot is not None:
        slot.free_slot(returned=held.row.interrupted is not None)
