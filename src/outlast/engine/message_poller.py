"""Read messages for the runs that execute here, and record what these runs wait for."""

from __future__ import annotations

import asyncio
import logging

from outlast.engine.background import Background
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreError
from outlast.execution.execution_state import ExecutionState
from outlast.execution.run_execution import RunExecution
from outlast.store.commands import SetWaiting

log = logging.getLogger("outlast")


class MessagePoller:
    """Deliver messages to executions that wait for them."""

    def __init__(self, client: StoreClient, background: Background) -> None:
        self._client = client
        self._background = background
        self._recorded_waits: dict[str, tuple[str, ...]] = {}
        """What each run waits for, according to the store."""
        self._polling: set[str] = set()
        """Ids of the runs whose messages are about to be read."""

    def forget(self, id: str) -> None:
        """Forget a run whose execution has ended."""
        self._recorded_waits.pop(id, None)

    def poll(self, execution: RunExecution) -> None:
        """Read the messages of a run in the background."""
        if execution.id not in self._polling:
            self._polling.add(execution.id)
            task = asyncio.Task(self._deliver(execution), loop=self._background.loop)
            self._background.track_task(task)

    async def _deliver(self, execution: RunExecution) -> None:
        await asyncio.sleep(0)
        self._polling.discard(execution.id)
        try:
            messages = await self._client.read(
                self._client.store.messages, execution.pk, execution.mailbox.last
            )
        except StoreError as error:
            log.warning(
                "cannot read the messages of run %s: %s",
                execution.id,
                error,
                extra=execution.log_fields(),
            )
            # The mailbox may still have messages from the start of the execution.
            messages = []
        if execution.state is not ExecutionState.LIVE:
            return
        execution.mailbox.arrived(messages)
        if execution.mailbox.waiting:
            self._recorded_waits.setdefault(execution.id, ())
            self.report_waiting(execution)

    def report_waiting(self, execution: RunExecution) -> None:
        """Update what the store says a run waits for, once it says anything."""
        waiting = execution.mailbox.waiting
        recorded = self._recorded_waits.get(execution.id, waiting)
        if execution.end_reason is None and recorded != waiting:
            self._recorded_waits[execution.id] = waiting
            command = SetWaiting(execution.pk, execution.fence, waiting)
            self._client.writer.enqueue(command, lambda *_: None)
