"""Acquire runs, items and batches for this worker, and release what it does not start."""

from __future__ import annotations

import asyncio
from typing import Any

from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.in_flight_registry import InFlight, SlotOwner
from outlast.engine.isolation import Isolation
from outlast.engine.registration import WorkerRegistration
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreError
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.commands import DRAINING, Claim, Refused, Release, Submit, Submitted
from outlast.store.rows import RunRow


class WorkAcquirer:
    """Write the commands that give work to this worker, and register what they return."""

    def __init__(
        self,
        client: StoreClient,
        registration: WorkerRegistration,
        in_flight: InFlight,
        isolation: Isolation,
        claimers: ClaimerSet,
        shutdown: ShutdownState,
    ) -> None:
        self._client = client
        self._registration = registration
        self._in_flight = in_flight
        self._isolation = isolation
        self._claimers = claimers
        self._shutdown = shutdown

    @property
    def worker_id(self) -> str:
        """Return the id under which this worker acquires work."""
        return self._registration.id

    def owns(self, row: RunRow) -> bool:
        """Return whether the row was acquired under an id that is not known to be dead."""
        return self._registration.is_alive(row.worker or "")

    async def claim(
        self, command: Claim, *, alone: bool = False, slot: SlotOwner | None = None
    ) -> list[RunRow]:
        """Claim runs or items. Return an empty list if this worker was swept or drains.

        Each uses a slot of `slot`. With `alone`, the claimed suspect is isolated: this process
        executes nothing beside it.
        """
        if alone:
            self._isolation.reserve()
        rows: list[RunRow] = []
        try:
            outcome = await self.acquire(command, slot)
            if not isinstance(outcome, Refused):
                rows = outcome
            elif self._shutdown.begun or outcome.why == DRAINING:
                self._claimers.stop()
            else:
                await self._registration.register(instead_of=command.worker)
                # Nothing else would wake them. Under its new id the worker may claim at once.
                self._claimers.wake()
        finally:
            if alone:
                self._isolation.settle_reservation(rows[0].fence if rows else None)
        return rows

    async def acquire(self, command: Claim | Submit, slot: SlotOwner | None = None) -> Any:
        """Write a command that gives runs to this worker, and return its outcome.

        The runs are held as soon as the outcome is known. They are released if the caller was
        cancelled.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._in_flight.claim_submitted()

        def answered(_: Any, outcome: Any) -> None:
            given = _given(outcome)
            self._in_flight.claim_answered(given, slot)
            if answer.done():
                for row in given:
                    self.release(row, "its claim was cancelled")
            elif isinstance(outcome, StoreError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        self._client.writer.enqueue(command, answered)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                for row in _given(answer.result()):
                    self.release(row, "its claim was cancelled")
            raise

    def release(self, row: RunRow, why: str) -> None:
        """Release a held run or item that was not started."""
        back = Release(row.pk, row.fence, why, interrupted=False)
        self._client.writer.enqueue(back, lambda *_: None)
        self._in_flight.drop(row.fence)


def _given(outcome: Any) -> list[RunRow]:
    """Return the rows that a command gave to this worker."""
    if isinstance(outcome, list):
        return outcome
    if not isinstance(outcome, Submitted):
        return []
    row = outcome.row
    return [row] if outcome.new and row is not None and row.worker is not None else []
