"""Poll for requests to this worker and for messages to the runs that execute here."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from outlast.engine.log_backoff import LogBackoff
from outlast.errors import StoreError
from outlast.execution import cancellation
from outlast.execution.state import ExecutionState
from outlast.store.commands import SetWaiting

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.run_execution import RunExecution

log = logging.getLogger("outlast")


class RequestPoller:
    """Read drain requests, cancellations and messages from the store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waits: dict[str, tuple[str, ...]] = {}
        """What each run waits for, according to the store."""
        self._looking: set[str] = set()
        self._log_backoff = LogBackoff(engine.loop.time)

    def forget(self, id: str) -> None:
        self._waits.pop(id, None)

    async def poll_requests(self) -> None:
        """Handle drain requests to this worker, and cancellations and messages to its runs."""
        engine = self._engine
        lives, begun = dict(engine.executions), False
        try:
            drain, cancels = await engine.read(self._requests, engine.worker.id)
        except StoreError as error:
            if self._log_backoff.should_log():
                log.warning("could not read what others ask of this worker: %s", error)
        else:
            self._log_backoff.reset()
            if drain is not None:
                engine.listener.drain_requested(drain)
            for id, why in cancels:
                execution = engine.executions.get(id)
                if execution is not None and execution is lives.get(id):
                    cancellation.check(execution, why)
                elif execution is not None:
                    begun = True
        for execution in list(engine.executions.values()):
            if execution.mailbox.waiting:
                self.poll_messages(execution)
        # An execution began meanwhile, and the request may have been for the one before it.
        if begun:
            await self.poll_requests()

    def _requests(self, worker: str) -> tuple[str | None, list[tuple[str, str]]]:
        """Read all requests in one thread call, because every notification leads here."""
        engine, store = self._engine, self._engine.store
        drain = store.asked(worker) if engine.accepts_drain_requests else None
        return drain, store.cancels(worker) if engine.executions else []

    def poll_messages(self, execution: RunExecution) -> None:
        engine = self._engine
        if execution.id not in self._looking:
            self._looking.add(execution.id)
            engine.track_task(asyncio.Task(self._mail(execution), loop=engine.loop))

    async def _mail(self, execution: RunExecution) -> None:
        engine = self._engine
        await asyncio.sleep(0)
        self._looking.discard(execution.id)
        try:
            messages = await engine.read(
                engine.store.messages, execution.pk, execution.mailbox.last
            )
        except StoreError as error:
            log.warning("could not look for messages: %s", error)
            # The mailbox may still have messages from the start of the execution.
            messages = []
        if execution.state is not ExecutionState.LIVE:
            return
        execution.mailbox.arrived(messages)
        if execution.mailbox.waiting:
            self._waits.setdefault(execution.id, ())
            self.report_waiting(execution)

    def report_waiting(self, execution: RunExecution) -> None:
        """Update what the store says a run waits for, once it says anything."""
        engine = self._engine
        waiting = execution.mailbox.waiting
        if execution.end_reason is None and self._waits.get(execution.id, waiting) != waiting:
            self._waits[execution.id] = waiting
            engine.writer.enqueue(
                SetWaiting(execution.pk, execution.fence, waiting), lambda *_: None
            )
