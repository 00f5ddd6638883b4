"""Read messages for the runs that execute here, and record what these runs wait for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice

from outlast.engine.background import Background
from outlast.engine.message_types import MessageTypes
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreBroken, StoreError
from outlast.execution.execution_state import ExecutionState
from outlast.execution.run_execution import RunExecution
from outlast.store.commands import SetWaiting
from outlast.store.protocol import Store
from outlast.store.rows import Message

log = logging.getLogger("outlast")

RUNS_AT_ONCE = 100
"""The most runs whose messages one call of a thread reads."""


class MessagePoller:
    """Deliver messages to executions that wait for them.

    Every change in the store may be a message for every run that waits here. One task reads for all
    of them, so their number does not become a number of threads.
    """

    def __init__(
        self, client: StoreClient, background: Background, message_types: MessageTypes
    ) -> None:
        self._client = client
        self._message_types = message_types
        self._background = background
        self._recorded_waits: dict[str, tuple[str, ...]] = {}
        """What each run waits for, according to the store."""
        self._wanted: dict[RunExecution, None] = {}
        """The executions whose messages are to be read, in the order in which they asked."""
        self._is_reading = False

    def forget(self, id: str) -> None:
        """Forget a run whose execution has ended."""
        self._recorded_waits.pop(id, None)

    def poll(self, execution: RunExecution) -> None:
        """Read the messages of a run in the background."""
        self._wanted[execution] = None
        if not self._is_reading:
            self._is_reading = True
            task = asyncio.Task(self._read_wanted(), loop=self._background.loop)
            self._background.track_task(task)

    async def _read_wanted(self) -> None:
        try:
            while self._wanted:
                # Other runs may ask in the same turn of the event loop.
                await asyncio.sleep(0)
                batch = list(islice(self._wanted, RUNS_AT_ONCE))
                for execution in batch:
                    del self._wanted[execution]
                live = [one for one in batch if one.state is ExecutionState.LIVE]
                if live:
                    for execution, found in zip(live, await self._read(live), strict=True):
                        self._deliver(execution, found)
        finally:
            self._is_reading = False

    async def _read(self, live: list[RunExecution]) -> Sequence[list[Message] | StoreError]:
        places = [(execution.pk, execution.mailbox.last) for execution in live]
        try:
            return await self._client.read(_messages_of, self._client.store, places)
        except StoreError as error:
            return [error] * len(live)

    def _deliver(self, execution: RunExecution, found: list[Message] | StoreError) -> None:
        if isinstance(found, StoreError):
            log.warning(
                "Could not read the messages of run %s: %s",
                execution.id,
                found,
                extra=execution.log_fields(),
            )
            # The mailbox may still have messages from the start of the execution.
            found = []
        if execution.state is not ExecutionState.LIVE:
            return
        execution.mailbox.arrived(found)
        if execution.mailbox.waiting:
            self._recorded_waits.setdefault(execution.id, ())
            self.report_waiting(execution)

    def report_waiting(self, execution: RunExecution) -> None:
        """Update what the store says a run waits for, once it says anything."""
        waiting = execution.mailbox.waiting
        recorded = self._recorded_waits.get(execution.id, waiting)
        if execution.end_reason is None and recorded != waiting:
            self._recorded_waits[execution.id] = waiting
            # Before the names: a reader that sees a name finds its type.
            self._message_types.record(execution.row.workflow, execution.mailbox.codecs)
            command = SetWaiting(execution.pk, execution.fence, waiting)
            self._client.writer.enqueue(command, lambda *_: None)


def _messages_of(store: Store, places: list[tuple[int, int]]) -> list[list[Message] | StoreError]:
    """Return the messages of runs after a number each. The damaged ones of a run are its error."""
    found: list[list[Message] | StoreError] = []
    for pk, after in places:
        try:
            found.append(store.messages(pk, after))
        except StoreBroken as broken:
            found.append(broken)
    return found
