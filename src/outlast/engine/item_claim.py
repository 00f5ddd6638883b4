"""Hold an item of a queue, and record whether it was acked or nacked."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from outlast.engine.in_flight_registry import HeldState
from outlast.errors import LeaseLost, StoreError, WrongStatus
from outlast.store.commands import Ack, Refused, Release

if TYPE_CHECKING:
    from outlast.engine.item_outcomes import ItemOutcomes
    from outlast.store.rows import RunRow

DELAY_MAX = 300.0
"""The longest pause before a failed item is tried again, unless `nack` names one."""


class ClaimState(Enum):
    HELD = auto()
    SETTLED = auto()
    """The item was acked, nacked or released."""
    LOST = auto()
    """The item belongs to another worker."""


class ItemClaim:
    """A claimed item, as the engine sees it. What a handler is given inherits from it."""

    __slots__ = ("_by_hand", "_handler_ended", "_outcomes", "_row", "_state", "_unanswered")

    def __init__(self, outcomes: ItemOutcomes, row: RunRow, *, by_hand: bool = False) -> None:
        self._outcomes = outcomes
        self._row = row
        self._by_hand = by_hand
        """Whether the program claimed it itself. Otherwise a consumer's handler processes it."""
        self._state = ClaimState.HELD
        self._unanswered = 0
        """The number of acks and nacks submitted but not yet answered."""
        self._handler_ended = False

    @property
    def _name(self) -> str:
        """Return the item's id without the name of its queue."""
        return self._row.id[len(self._row.queue) + 1 :]

    @property
    def _attempt(self) -> int:
        """Return the number of this attempt, from 1. Interruptions do not count."""
        return 1 + self._row.failures + self._row.deaths

    @property
    def _is_settled(self) -> bool:
        """Return whether nothing is left to record, or what is left is on its way."""
        return self._state is not ClaimState.HELD or self._unanswered > 0

    def _failure(self, delay: float | None, reason: str) -> Release:
        """Return the command that records a failed attempt. Retry after `delay` seconds."""
        pause = min(2.0 ** min(self._row.failures, 60), DELAY_MAX) if delay is None else delay
        text = reason[: self._outcomes.error_text_max] or "nacked"
        return Release(
            self._row.pk, self._row.fence, text, delay=pause, interrupted=False, failed=True
        )

    async def _settle(self, command: Ack | Release) -> None:
        """Record an ack or a nack.

        Raise WrongStatus for a nack of a settled item, and LeaseLost if another worker has it.
        """
        lost = self._state is ClaimState.LOST
        if self._is_settled and not lost and isinstance(command, Release):
            raise WrongStatus(
                f"item {self._name!r} of queue {self._row.queue!r} was acked or nacked already."
            )
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(_: Any, outcome: Any) -> None:
            self._unanswered -= 1
            if not isinstance(outcome, StoreError):
                self._on_settled(command, outcome)
            elif self._handler_ended and not self._unanswered:
                # The handler has ended: nothing acks or nacks the item again.
                self._outcomes.in_flight.drop(self._row.fence)
            if answer.done():
                # The caller was cancelled. The command is in effect all the same.
                return
            if isinstance(outcome, StoreError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        self._unanswered += 1
        self._outcomes.writer.enqueue(command, answered)
        if isinstance(await answer, Refused):
            raise LeaseLost(
                f"item {self._name!r} of queue {self._row.queue!r} belongs to another worker: this "
                "one was considered dead. Stop processing it."
            )

    def _on_settled(self, command: Ack | Release, outcome: Any) -> None:
        outcomes = self._outcomes
        in_flight = outcomes.in_flight
        fence = self._row.fence
        first = self._state is ClaimState.HELD
        if isinstance(outcome, Refused):
            self._state = ClaimState.LOST
        elif first:
            self._state = ClaimState.SETTLED
        held = in_flight.state(fence)
        if self._by_hand or self._handler_ended:
            in_flight.drop(fence)
        elif held is not HeldState.HUNG:
            # Its handler goes on, and keeps its slot.
            in_flight.ending(fence)
        if held is HeldState.BY_HAND:
            outcomes.on_handled(released=False)
        if first:
            outcomes.report(self._row, command, outcome)
        if not isinstance(outcome, Refused):
            outcomes.on_recorded(self._row, command, outcome)

    # -- called by its consumer

    def _mark_lost(self) -> None:
        """Note that another worker owns the item: nothing more is recorded of it."""
        self._state = ClaimState.LOST

    def _mark_settled(self) -> None:
        """Note that its consumer has submitted what became of it."""
        if self._state is ClaimState.HELD:
            self._state = ClaimState.SETTLED

    def _on_handler_ended(self) -> None:
        self._handler_ended = True
