"""Stop the work of a worker id that the store has declared dead, and register again."""

from __future__ import annotations

from outlast.engine.background import Background
from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.registration import WorkerRegistration
from outlast.execution.execution_state import EndReason
from outlast.execution.shutdown_state import ShutdownState
from outlast.telemetry.meters import Meters


class LostLease:
    """Give up what another worker may own by now."""

    def __init__(
        self,
        registration: WorkerRegistration,
        in_flight: InFlight,
        claimers: ClaimerSet,
        *,
        meters: Meters,
        background: Background,
        shutdown: ShutdownState,
    ) -> None:
        self._registration = registration
        self._in_flight = in_flight
        self._claimers = claimers
        self._meters = meters
        self._background = background
        self._shutdown = shutdown
        registration.on_lost(self._give_up)

    def _give_up(self, worker: str) -> None:
        self._meters.lease_lost()
        for execution in list(self._in_flight.executions.values()):
            if execution.row.worker == worker:
                execution.stop(EndReason.lost("its worker was considered dead"))
        self._claimers.lose(worker)
        self._in_flight.lose(worker)
        if not self._shutdown.begun:
            self._background.spawn(self._registration.register(instead_of=worker))
