"""Execute a suspected poison run in isolation: while one is held, nothing else is claimed.

A suspect is a run whose last workers, two at least, died while it executed and had recorded
nothing. It executes alone, or only beside its ancestors, until it records something. If it kills
this process too, no other run is harmed or blamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from outlast.engine.in_flight_registry import InFlight
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.rows import RunRow

POLL_SECONDS = 0.02
"""Seconds between two checks whether the isolated run has ended."""


class IsolationState(Enum):
    """Whether a suspect has this process to itself."""

    NONE = "none"
    RESERVED = "reserved"
    """The claim of a suspect is pending."""
    ISOLATED = "isolated"


class Isolation:
    """Keep other work away while this process executes a suspect, or waits to claim one."""

    def __init__(
        self,
        in_flight: InFlight,
        shutdown: ShutdownState,
        *,
        patience: float,
        on_ended: Callable[[], None],
    ) -> None:
        self._in_flight = in_flight
        self._shutdown = shutdown
        self._patience = patience
        """Seconds that other work waits for an isolated run."""
        self._on_ended = on_ended
        """Called when other work may be claimed again."""
        self._state = IsolationState.NONE
        self.fence: int | None = None
        """The fence of the isolated suspect."""
        self._yielding: set[object] = set()
        """Claimers that claim nothing, so that this process becomes empty for a suspect."""
        in_flight.on_released(self.end)

    @property
    def is_active(self) -> bool:
        """Return whether a suspect is isolated here, or will be if its claim succeeds."""
        return self._state is not IsolationState.NONE

    @property
    def suspends_claims(self) -> bool:
        """Return whether nothing else may be claimed now."""
        return bool(self._yielding) or self._state is not IsolationState.NONE

    def is_empty(self) -> bool:
        """Return whether nothing is held here, so that a suspect would be alone."""
        return self._in_flight.is_empty()

    def start_yielding(self, claimer: object) -> None:
        """Suspend all claims until nothing is held and `claimer` can claim a suspect."""
        self._yielding.add(claimer)

    def stop_yielding(self, claimer: object) -> None:
        """Undo `start_yielding`. A repeat is harmless."""
        self._yielding.discard(claimer)

    def can_isolate(self, row: RunRow) -> bool:
        """Return whether a suspect would be alone here, or only with its ancestors.

        Its ancestors wait for it, so they do not break its isolation.
        """
        ancestors = self._in_flight.ancestors_held(row.parent)
        free = not self.is_active or self._is_among(ancestors)
        return free and self._in_flight.is_empty(but=ancestors)

    def _is_among(self, ids: list[str]) -> bool:
        """Return whether the isolated run is one of these."""
        row = None if self.fence is None else self._in_flight.row(self.fence)
        return row is not None and row.id in ids

    def reserve(self) -> None:
        """Reserve isolation for a suspect whose claim is about to be submitted."""
        if self._state is IsolationState.NONE:
            self._state = IsolationState.RESERVED

    def settle_reservation(self, fence: int | None) -> None:
        """Isolate the suspect that was claimed. End the reservation if `fence` is None."""
        if self._state is not IsolationState.RESERVED:
            return
        if fence is None:
            self._state = IsolationState.NONE
            self._on_ended()
        else:
            self._state = IsolationState.ISOLATED
            self.fence = fence
            self._yielding.clear()

    def end(self, fence: int) -> None:
        """End the isolation of a run that has left or is no longer a suspect."""
        if self.fence == fence:
            self._state = IsolationState.NONE
            self.fence = None
            self._on_ended()

    async def wait_until_over(self, parent: str | None) -> None:
        """Wait until no run is isolated, for `suspect_patience` seconds, or until the close.

        The children of the isolated run, identified by their `parent`, do not wait.
        """
        now = asyncio.get_running_loop().time
        until = now() + self._patience
        while self.is_active and now() < until and not self._shutdown.closing:
            if self._is_among(self._in_flight.ancestors_held(parent)):
                return
            await asyncio.sleep(POLL_SECONDS)
