"""Start a run in this process, take it over, or join it where it is in flight."""

from __future__ import annotations

import asyncio

from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.background import Background
from outlast.engine.execution_starter import ExecutionStarter
from outlast.engine.isolation import Isolation
from outlast.engine.registration import WorkerRegistration
from outlast.engine.submission import OnConflict, Submissions, check_joins
from outlast.engine.takeover_by_id import Takeover
from outlast.errors import Draining, StoreUnavailable
from outlast.execution.definitions import WorkflowCall
from outlast.execution.shutdown_state import ShutdownState
from outlast.execution.tracing import Spans
from outlast.store.commands import DRAINING, Refused, Submit, Submitted
from outlast.store.rows import ENDED, RunRow

REGISTRATIONS_MAX = 3
"""How often a start registers the worker again before it gives up."""


class RunStarter:
    """Start runs that a caller in this process asked for."""

    def __init__(
        self,
        submissions: Submissions,
        acquirer: WorkAcquirer,
        starter: ExecutionStarter,
        takeover: Takeover,
        *,
        isolation: Isolation,
        registration: WorkerRegistration,
        background: Background,
        shutdown: ShutdownState,
        spans: Spans,
    ) -> None:
        self._submissions = submissions
        self._acquirer = acquirer
        self._starter = starter
        self._takeover = takeover
        self._isolation = isolation
        self._registration = registration
        self._background = background
        self._shutdown = shutdown
        self._spans = spans

    async def start(
        self,
        call: WorkflowCall,
        id: str,
        parent: RunRow | None = None,
        on_conflict: OnConflict = "raise",
    ) -> RunRow:
        """Start a run in this process, take it over, or join it where it is in flight.

        Raise Conflict if the id belongs to other work, and Draining while this process drains. If
        the caller is cancelled, a submitted run is started all the same, so that no run is left
        behind.
        """
        command = self._submissions.for_call(call, id)
        if self._shutdown.begun:
            raise Draining(
                f"this process is shutting down: run {id!r} was not started. Submit it to a "
                "queue, or start it in another process."
            )
        # A child goes to its parent's queue.
        if parent is not None:
            command = command._replace(
                parent=parent.id, queue=parent.queue, priority=parent.priority, by=parent.by
            )
        await self._isolation.wait_until_over(command.parent)
        with self._spans.starting("start", command.workflow) as link:
            starting = self._background.spawn(self._start(call, command, on_conflict), quiet=True)
            row = await asyncio.shield(starting)
            link([row.seed])
        return row

    async def _start(self, call: WorkflowCall, command: Submit, on_conflict: OnConflict) -> RunRow:
        outcome = await self._submit(command)
        row = outcome.row
        assert row is not None, "a run with a worker is returned"
        if outcome.new:
            self._starter.begin(row, call.workflow)
        else:
            check_joins(row, call, on_conflict)
            if row.status not in ENDED and row.status != "parked":
                self._takeover.start(row, call.workflow)
        return row

    async def _submit(self, command: Submit) -> Submitted:
        """Submit the run for this worker, which registers again if it was declared dead."""
        for _ in range(REGISTRATIONS_MAX):
            worker = self._registration.id
            outcome: Submitted | Refused = await self._acquirer.acquire(
                command._replace(worker=worker)
            )
            if not isinstance(outcome, Refused):
                return outcome
            if self._shutdown.begun or outcome.why == DRAINING:
                raise Draining(
                    f"this process is shutting down: run {command.id!r} was not started. Submit "
                    "it to a queue, or start it in another process."
                )
            await self._registration.register(instead_of=worker)
        raise StoreUnavailable(
            f"run {command.id!r} was not started: the store declared this worker dead "
            f"{REGISTRATIONS_MAX} times in a row. Check the clocks of this machine and its store."
        )
