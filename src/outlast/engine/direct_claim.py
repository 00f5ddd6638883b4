"""Claim one run or batch by its id, after freeing it from a dead worker."""

from __future__ import annotations

import asyncio
import logging
import secrets

from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.dead_worker_sweeper import Sweeper
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.isolation import Isolation
from outlast.engine.store_client import StoreClient
from outlast.execution.services import log_fields
from outlast.store.commands import Claim
from outlast.store.rows import RunRow

log = logging.getLogger("outlast")

NOTICE_AFTER_SECONDS = 2.0
"""How long a program waits for a run held by another worker before it logs the wait."""


class DirectClaim:
    """Claim runs that a caller here requested by their ids."""

    def __init__(
        self,
        client: StoreClient,
        acquirer: WorkAcquirer,
        in_flight: InFlight,
        isolation: Isolation,
        sweeper: Sweeper,
    ) -> None:
        self._client = client
        self._acquirer = acquirer
        self._in_flight = in_flight
        self._isolation = isolation
        self._sweeper = sweeper

    async def free(self, row: RunRow) -> bool:
        """Free a run if this worker left it behind or a dead worker holds it.

        Return False if its worker is alive.
        """
        is_own = row.worker == self._acquirer.worker_id
        if is_own and not self._in_flight.is_held(row.fence):
            # An execution here left the run behind when the store did not answer, unless its claim
            # is pending.
            await self._sweeper.tidy()
            return True
        return await self._sweeper.sweep()

    async def current_row(self, id: str) -> RunRow | None:
        """Read a run's row, after freeing the run if possible."""
        row = await self._client.read(self._client.store.run, id)
        if row is not None and row.worker is not None and await self.free(row):
            row = await self._client.read(self._client.store.run, id)
        return row

    def may_claim(self, row: RunRow, *, patient: bool) -> bool:
        """Return whether the run may be claimed now. A suspect waits for isolation if `patient`."""
        return not row.is_suspect or not patient or self._isolation.can_isolate(row)

    async def claim(self, row: RunRow) -> list[RunRow]:
        """Claim the run. A suspect is isolated if nothing else is held here."""
        command = Claim(self._acquirer.worker_id, secrets.token_hex(8), ids=(row.id,))
        alone = row.is_suspect and self._isolation.can_isolate(row)
        return await self._acquirer.claim(command, alone=alone)


class HeldElsewhereNotice:
    """Log once, after a delay, that a run is held by another worker."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._now = asyncio.get_running_loop().time
        self._at: float | None = self._now() + NOTICE_AFTER_SECONDS

    def log_if_late(self, row: RunRow) -> None:
        """Log a run that another worker holds, if the caller has waited long enough."""
        if self._at is not None and row.worker is not None and self._now() > self._at:
            self._at = None
            log.warning(
                "Run %s is held by worker %s. Waiting until that worker releases it or is "
                "declared dead. Its lease is %g s.",
                row.id,
                row.worker,
                self._lease,
                extra=log_fields(row),
            )
