"""Take over a run that a caller here requested by its id, as soon as no other worker holds it."""

from __future__ import annotations

import asyncio
import logging

from outlast.engine.background import Background
from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.direct_claim import DirectClaim, HeldElsewhereNotice
from outlast.engine.execution_starter import ExecutionStarter
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.log_backoff import LogBackoff
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.registration import WorkerRegistration
from outlast.errors import StoreError
from outlast.execution.definitions import WorkflowDefinition
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings import Settings
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, RunRow
from outlast.telemetry.error_text import redact

log = logging.getLogger("outlast")


class FleetRule:
    """Decide which runs are left to the workers that claim from their queues."""

    def __init__(
        self,
        claimers: ClaimerSet,
        registration: WorkerRegistration,
        in_flight: InFlight,
        store: Store,
    ) -> None:
        self._claimers = claimers
        self._registration = registration
        self._in_flight = in_flight
        self._store = store

    def will_claim(self, row: RunRow) -> bool:
        """Return whether a claimer, of this worker or another, will take the run in time.

        Such a run is not taken over. A suspect whose parent waits for it here is: with its parent
        held, this worker would never be empty for it.
        """
        if row.queue not in self._claimers.queues or row.worker == self._registration.id:
            return False
        suspect = row.is_suspect and not self._in_flight.ancestors_held(row.parent)
        return row.worker is not None or row.due > self._store.now() or suspect


class Takeover:
    """Take over runs in the background until this worker has them."""

    def __init__(
        self,
        claims: DirectClaim,
        fleet: FleetRule,
        starter: ExecutionStarter,
        *,
        in_flight: InFlight,
        notifier: ChangeNotifier,
        background: Background,
        shutdown: ShutdownState,
        settings: Settings,
        store: Store,
    ) -> None:
        self._claims = claims
        self._fleet = fleet
        self._starter = starter
        self._in_flight = in_flight
        self._notifier = notifier
        self._background = background
        self._shutdown = shutdown
        self._settings = settings
        self._store = store
        self._under_way: dict[str, bool] = {}
        """Run ids in progress, and whether a repeated request came meanwhile."""

    def start(self, row: RunRow, workflow: WorkflowDefinition) -> None:
        """Take over a run in the background. Repeated requests for the same run are one."""
        if row.id in self._in_flight.executions or self._shutdown.begun:
            return
        if row.id in self._under_way:
            self._under_way[row.id] = True
            return
        self._under_way[row.id] = False
        task = self._background.loop.create_task(self._take_over(row.id, workflow))
        task.add_done_callback(lambda task: self._on_done(task, row, workflow))
        self._background.track_task(task)

    def _on_done(self, task: asyncio.Task[None], row: RunRow, workflow: WorkflowDefinition) -> None:
        """Start again if the run was requested meanwhile.

        The execution that this takeover started may have ended before the takeover itself did. The
        run is then wanted back, for example to be compensated.
        """
        if self._under_way.pop(row.id) and not task.cancelled():
            self.start(row, workflow)

    async def _take_over(self, id: str, workflow: WorkflowDefinition) -> None:
        """Try until this worker holds the run, or until there is nothing to take over.

        That is so when the run has ended, is parked, is held here, or is left to the fleet.
        """
        now = self._background.loop.time
        notice = HeldElsewhereNotice(self._settings.lease)
        log_backoff = LogBackoff(now)
        patient_until = now() + self._settings.suspect_patience
        while not self._shutdown.begun:
            seen = self._notifier.count
            pause = min(self._settings.heartbeat, self._settings.poll)
            try:
                row = await self._claims.current_row(id)
                if row is None or self._is_settled(row) or self._fleet.will_claim(row):
                    return
                notice.log_if_late(row)
                due_in = row.due - self._store.now() if row.worker is None else pause
                if due_in > 0:
                    pause = min(pause, due_in)
                elif self._claims.may_claim(row, patient=now() < patient_until):
                    rows = await self._claims.claim(row)
                    await self._starter.begin_read([(one, workflow) for one in rows], claimed=False)
                    if rows:
                        return
            except Exception as error:
                # Keep trying after any failure: the caller would otherwise wait for the run for
                # ever.
                if log_backoff.should_log():
                    self._log_failure(id, error)
            await self._notifier.wait(max(0.001, pause), seen)

    def _is_settled(self, row: RunRow) -> bool:
        ended = row.status in ENDED or row.status == "parked"
        return ended or self._in_flight.holds_run(row.id)

    def _log_failure(self, id: str, error: Exception) -> None:
        if isinstance(error, StoreError):
            log.warning("Could not take over run %s yet: %s", id, error, extra={"run": id})
        else:
            log.error(
                "Failed to take over run %s. Outlast tries again.",
                id,
                exc_info=redact(error, self._settings.log_values),
                extra={"run": id},
            )
