"""Release a worker's idle runs until they have something to do."""

from __future__ import annotations

import asyncio

from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.in_flight_registry import InFlight
from outlast.execution.execution_state import EndReason
from outlast.execution.release import what_it_waits_for
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.protocol import Store


class WaitingRunReleaser:
    """Check for idle runs every `linger` seconds while the worker executes runs."""

    def __init__(
        self,
        in_flight: InFlight,
        claimers: ClaimerSet,
        store: Store,
        shutdown: ShutdownState,
        linger: float,
    ) -> None:
        self._in_flight = in_flight
        self._claimers = claimers
        self._store = store
        self._shutdown = shutdown
        self._linger = linger
        self._timer: asyncio.TimerHandle | None = None
        self._idle_entries: dict[int, int] = {}
        """The number of the last entry of each run that was idle at the last check, by fence."""

    def _release_idle(self) -> None:
        """Release runs that only wait, and did so at the last check too.

        Runs that come due within `linger` seconds are kept.
        """
        self._timer = None
        soon = self._store.now() + self._linger
        idle_entries: dict[int, int] = {}
        for execution in list(self._in_flight.executions.values()):
            if execution.row.queue not in self._claimers.queues:
                continue
            rest = what_it_waits_for(execution)
            if rest is None or rest.due <= soon:
                continue
            if self._idle_entries.get(execution.fence) == rest.entry:
                execution.stop(EndReason.waiting(rest))
            idle_entries[execution.fence] = rest.entry
        self._idle_entries = idle_entries
        self.watch()

    def watch(self) -> None:
        """Schedule the next check, if a worker executes runs."""
        if (
            self._claimers.own is not None
            and self._timer is None
            and self._in_flight.executions
            and not self._shutdown.closing
        ):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._linger, self._release_idle)
