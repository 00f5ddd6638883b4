"""Handle what other processes request of this worker and of the runs that execute here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from outlast.engine.background import Background
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.log_backoff import LogBackoff
from outlast.engine.message_poller import MessagePoller
from outlast.engine.registration import WorkerRegistration
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreError
from outlast.execution import cancellation
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.commands import Cancel, Refused

log = logging.getLogger("outlast")


class RequestPoller:
    """Read drain requests, cancellations and messages from the store."""

    def __init__(
        self,
        client: StoreClient,
        registration: WorkerRegistration,
        in_flight: InFlight,
        messages: MessagePoller,
        *,
        background: Background,
        shutdown: ShutdownState,
        claims: Callable[[], bool],
        on_drain_requested: Callable[[str], None],
    ) -> None:
        self._client = client
        self._registration = registration
        self._in_flight = in_flight
        self._messages = messages
        self._background = background
        self._shutdown = shutdown
        self._claims = claims
        """Returns whether this process claims runs or items."""
        self._on_drain_requested = on_drain_requested
        self._log_backoff = LogBackoff(background.loop.time)

    @property
    def accepts_drain_requests(self) -> bool:
        """Return whether a drain request in the store applies to this process.

        It does for a process that claims runs or items and is not draining yet.
        """
        return self._claims() and not self._shutdown.begun

    def poll_soon(self) -> None:
        """Poll in the background, if there is anything to which a request could apply."""
        relevant = self._in_flight.executions or self.accepts_drain_requests
        if relevant and not self._shutdown.closing:
            self._background.spawn(self.poll_requests())

    async def poll_requests(self) -> None:
        """Handle drain requests to this worker, and cancellations and messages to its runs."""
        executions = self._in_flight.executions
        before = dict(executions)
        began_meanwhile = False
        try:
            drain, cancels = await self._client.read(self._requests, self._registration.id)
        except StoreError as error:
            if self._log_backoff.should_log():
                log.warning("Could not read requests to this worker, such as drains: %s", error)
        else:
            self._log_backoff.reset()
            if drain is not None:
                self._on_drain_requested(drain)
            for id, why in cancels:
                execution = executions.get(id)
                if execution is not None and execution is before.get(id):
                    cancellation.check(execution, why)
                elif execution is not None:
                    began_meanwhile = True
        for execution in list(executions.values()):
            if execution.mailbox.waiting:
                self._messages.poll(execution)
        # The request may have been for the execution before it.
        if began_meanwhile:
            await self.poll_requests()

    def _requests(self, worker: str) -> tuple[str | None, list[tuple[str, str]]]:
        """Read all requests in one thread call, because every notification leads here."""
        store = self._client.store
        drain = store.asked(worker) if self.accepts_drain_requests else None
        return drain, store.cancels(worker) if self._in_flight.executions else []

    async def cancel(self, id: str, why: str) -> Any:
        """Request the cancellation of a run and return the store's outcome.

        If the run executes here, do not wait for the next poll.
        """
        outcome = await self._client.writer.execute(Cancel(id, why))
        execution = self._in_flight.executions.get(id)
        if execution is not None and not isinstance(outcome, Refused):
            cancellation.check(execution, why)
        return outcome
