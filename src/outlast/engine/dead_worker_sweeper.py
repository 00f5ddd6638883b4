"""Find dead workers and make their runs available to others.

Every process that claims sweeps. Concurrent sweeps are harmless: the second one finds nothing left.
"""

from __future__ import annotations

import logging

from outlast.engine.hooks import Hooks
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.registration import WorkerRegistration
from outlast.engine.store_client import StoreClient
from outlast.settings import Settings
from outlast.store.commands import Release, SetWaiting, Sweep, Swept
from outlast.telemetry.meters import Meters

log = logging.getLogger("outlast.worker")


class Sweeper:
    """Sweep dead workers, and release what this worker holds only according to the store."""

    def __init__(
        self,
        client: StoreClient,
        registration: WorkerRegistration,
        in_flight: InFlight,
        *,
        hooks: Hooks,
        meters: Meters,
        settings: Settings,
    ) -> None:
        self._client = client
        self._registration = registration
        self._in_flight = in_flight
        self._hooks = hooks
        self._meters = meters
        self._settings = settings

    async def sweep(self) -> bool:
        """Sweep dead workers, and return whether there were any."""
        if not await self._client.read(self._client.store.dead_workers):
            return False
        command = Sweep(self._settings.death_backoff, self._settings.death_backoff_max)
        swept: Swept = await self._client.writer.execute(command)
        if swept.workers:
            self._meters.died(len(swept.workers))
            # For a program that is not a worker, this is routine.
            level = logging.WARNING if self._registration.offer.concurrency else logging.INFO
            log.log(
                level,
                "Found %s: %s queued again, %s.",
                _count(len(swept.workers), "dead worker"),
                _count(len(swept.runs) - len(swept.dead), "run"),
                _count(len(swept.dead), "dead letter"),
                extra={"workers": list(swept.workers)},
            )
        for id in swept.dead:
            self._hooks.report("dead", id)
        return bool(swept.workers)

    async def tidy(self) -> None:
        """Release runs that the store assigns to this worker although it does not hold them.

        Their claim was never answered, or the store did not take their end.
        """
        held = await self._client.read(self._client.store.held, self._registration.id)
        if all(self._in_flight.is_held(fence) for _, fence, _ in held):
            return
        writer = self._client.writer
        # The writer answers commands in order. Once this no-op is answered, so is every claim that
        # was committed before the read, and its runs are held.
        await writer.execute(SetWaiting(0, 0, ()))
        for run, fence, _ in held:
            if not self._in_flight.is_held(fence):
                why = "its worker no longer held it"
                await writer.execute(Release(run, fence, why, interrupted=False))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
