"""Wait for runs that execute in this process or in another one."""

from __future__ import annotations

import asyncio
import math

from outlast.codec.exceptions import encode_error
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.store_client import StoreClient
from outlast.errors import Draining, StoreUnavailable
from outlast.execution.execution_state import OutcomeKind, RunOutcome
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.rows import ENDED


class RunWaiter:
    """Wait until runs end, and until parked runs continue."""

    def __init__(
        self,
        client: StoreClient,
        in_flight: InFlight,
        notifier: ChangeNotifier,
        shutdown: ShutdownState,
        poll: float,
    ) -> None:
        self._client = client
        self._in_flight = in_flight
        self._notifier = notifier
        self._shutdown = shutdown
        self._poll = poll
        """Seconds between two reads of a run without a notification."""

    async def until_ended(self, id: str) -> RunOutcome:
        """Wait until a run has ended or is parked, in any process, and return its outcome.

        Raise StoreUnavailable if this engine closes meanwhile, and Draining if a signal's drain
        released the run. If an error evicted the run's execution here, raise that error.
        """
        while True:
            self._check_open(id)
            execution = self._in_flight.executions.get(id)
            if execution is not None:
                outcome = await asyncio.shield(execution.ending.finished)
                if outcome.is_status:
                    return outcome
                if outcome.cause is not None:
                    raise outcome.cause
                self._check_open(id)
                if self._shutdown.signalled:
                    raise Draining(
                        f"this process is shutting down and released run {id!r}. Another worker "
                        "continues it."
                    )
            seen = self._notifier.count
            row = await self._client.read(self._client.store.run, id)
            if row is None:
                error = encode_error(LookupError(f"run {id} no longer exists"), 1000)
                return RunOutcome(OutcomeKind.FAILED, error=error)
            if row.status in ENDED or row.status == "parked":
                return RunOutcome(OutcomeKind(row.status), row.value, row.error, row.reason)
            await self._notifier.wait(min(self._poll, self._seconds_left(id)), seen)

    def _check_open(self, id: str) -> None:
        if self._shutdown.closing:
            raise StoreUnavailable(
                f"Outlast was closed while run {id!r} was in flight. To continue the run, start it "
                "again under the same id."
            )

    def _seconds_left(self, id: str) -> float:
        """Return how long a caller may still wait for a run that another process executes.

        Raise Draining when no time is left.
        """
        shutdown = self._shutdown
        if not shutdown.signalled or not shutdown.finished.done() or shutdown.ends_process:
            return math.inf
        # A server with its own signal handler waits for its requests, and nothing else would end
        # this one. Until then the request may get its answer.
        if shutdown.seconds_before_exit <= 0:
            raise Draining(
                f"this process is shutting down. Run {id!r} is executing in another process: ask "
                "for its result there or later."
            )
        return shutdown.seconds_before_exit

    async def while_parked(self, id: str) -> None:
        """Wait until a run is no longer parked."""
        while True:
            seen = self._notifier.count
            row = await self._client.read(self._client.store.run, id)
            if row is None or row.status != "parked":
                return
            await self._notifier.wait(self._poll, seen)
