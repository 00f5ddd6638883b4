"""Stop everything that executes in an engine, and release what has stopped."""

from __future__ import annotations

import asyncio
from typing import Any

from outlast.engine.active_scopes import ActiveScopes
from outlast.engine.background import Background
from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.hooks import Hooks
from outlast.engine.in_flight_registry import HeldState, InFlight
from outlast.engine.registration import WorkerRegistration
from outlast.engine.store_client import StoreClient
from outlast.execution.execution_state import EndReason
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.commands import EACH


class Closing:
    """Stop the runs, items, hooks and tasks of an engine."""

    def __init__(
        self,
        in_flight: InFlight,
        claimers: ClaimerSet,
        hooks: Hooks,
        scopes: ActiveScopes,
        *,
        registration: WorkerRegistration,
        client: StoreClient,
        background: Background,
        shutdown: ShutdownState,
    ) -> None:
        self._in_flight = in_flight
        self._claimers = claimers
        self._hooks = hooks
        self._scopes = scopes
        self._registration = registration
        self._client = client
        self._background = background
        self._shutdown = shutdown

    async def close(
        self, why: str, *, left_by_task: asyncio.Task[Any] | None, left_by_thread: int | None
    ) -> None:
        """Stop every execution and release what has stopped.

        After a drain there is little left to do. A run whose step still executes (a thread that
        hangs) is kept: the worker holds its lock and renews its lease until this process is gone.
        The task and the thread that leave the app do not count as executing.
        """
        self._in_flight.begin_drain()
        self._claimers.stop()
        if self._in_flight.held() and not self._shutdown.draining:
            # If the process is killed meanwhile, its runs count as interrupted, not as at fault.
            self._client.writer.enqueue(self._registration.draining(), lambda *_: None)
        await self._stop_executions(why)
        for row in await self._claimers.close_consumers(self._shutdown.close_seconds):
            self._in_flight.hang(row)
        await self._hooks.close(self._shutdown.close_seconds)
        await self._background.cancel_tasks(self._shutdown.close_seconds)
        self._hang_batches(left_by_task, left_by_thread)

    async def _stop_executions(self, why: str) -> None:
        executions = list(self._in_flight.executions.values())
        for execution in executions:
            execution.stop(EndReason.released(why))
        ends: list[asyncio.Future[Any]] = [
            execution.ending.finished for execution in self._in_flight.executions.values()
        ]
        if ends:
            await asyncio.wait(ends, timeout=self._shutdown.close_seconds * 2)

    def _hang_batches(
        self, left_by_task: asyncio.Task[Any] | None, left_by_thread: int | None
    ) -> None:
        """Keep the batches of `each` and `map` whose code still executes."""
        going_on = {
            scope.name
            for scope in self._scopes
            if scope.kind in ("each", "map") and scope.goes_on(left_by_thread, left_by_task)
        }
        for state in (HeldState.STARTED, HeldState.ENDING):
            for row in self._in_flight.in_state(state):
                if row.workflow == EACH and row.id in going_on:
                    self._in_flight.hang(row)
