"""Claim the items of a queue and call a handler for each."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.background import Background
from outlast.engine.claimer import ClaimedWork, Claimer
from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.item_claim import ItemClaim
from outlast.engine.item_outcomes import ItemOutcomes
from outlast.errors import Draining, StoreError
from outlast.execution.services import log_fields
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.commands import ITEM, Ack, Refused, Release
from outlast.store.rows import RunRow
from outlast.telemetry.error_text import redact

log = logging.getLogger("outlast.items")


class Consumer:
    """One `consume` call: a claimer whose rows become calls of a handler.

    The handler is given an `item_type`, which the API defines.
    """

    def __init__(
        self,
        queue: str,
        handler: Callable[[Any], Awaitable[Any] | Any],
        item_type: type[ItemClaim],
        *,
        build_claimer: Callable[[ClaimedWork], Claimer],
        claimers: ClaimerSet,
        acquirer: WorkAcquirer,
        outcomes: ItemOutcomes,
        background: Background,
        shutdown: ShutdownState,
        log_values: int,
    ) -> None:
        self._handler = handler
        self._item_type = item_type
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._claimers = claimers
        self._acquirer = acquirer
        self._outcomes = outcomes
        self._background = background
        self._shutdown = shutdown
        self._log_values = log_values
        self._tasks: dict[asyncio.Task[None], ItemClaim] = {}
        self._commands: list[tuple[ItemClaim, Ack | Release]] = []
        """Acks and releases to submit, in one commit with the next claim."""
        self._unanswered = 0
        """The number of acks and releases that are not answered yet."""
        self._all_answered = asyncio.Event()
        self._claiming = True
        self.claimer = build_claimer(
            ClaimedWork((queue,), lambda: (ITEM,), self._begin, self._submit)
        )

    async def work(self) -> None:
        """Claim and handle items until the consumer is stopped or cancelled."""
        self._claimers.add_consumer(self)
        shutdown = self._shutdown
        try:
            await self.claimer.work()
            while shutdown.begun and not shutdown.closing and self._tasks and self._claiming:
                # A drain lets the handlers end.
                await asyncio.wait(list(self._tasks))
        finally:
            await self.close(shutdown.close_seconds)

    @property
    def under_way(self) -> list[str]:
        """Return the ids of the items whose handlers have not ended."""
        return [item._row.id for item in list(self._tasks.values())]

    def stop_all(self) -> None:
        """Stop every handler. Each item is released as soon as its handler has ended."""
        self.claimer.stop()
        self._claiming = False
        for task in self._tasks:
            task.cancel()
        self._submit()

    async def close(self, timeout: float) -> list[RunRow]:
        """Stop and return the items that still execute after `timeout` seconds."""
        self.stop_all()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout)
        if self._unanswered:
            # An item may be a dead letter by now: its hook is called before the app is left.
            self._all_answered.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._all_answered.wait()
        return [item._row for item in self._tasks.values()]

    def stop(self) -> None:
        """Stop claiming and let the handlers in flight end.

        Submit the outcomes of ended handlers now: there is no next claim to commit them with.
        """
        self.claimer.stop()
        self._submit()

    def lost(self, worker: str) -> None:
        """Cancel the handlers of a worker that was declared dead: it no longer owns its items."""
        for task, item in self._tasks.items():
            if item._row.worker == worker:
                item._mark_lost()
                self._outcomes.report_lost(item._row)
                task.cancel()

    async def _begin(self, rows: list[RunRow]) -> None:
        for row in rows:
            mine = self._acquirer.owns(row) and self._claiming
            if not mine or not self._outcomes.in_flight.start(row.fence):
                why = "its worker was considered dead or drains, or its consumer stopped"
                self._acquirer.release(row, why)
                continue
            item = self._item_type(self._outcomes, row)
            task = self._background.loop.create_task(self._handle(item))
            self._tasks[task] = item
            task.add_done_callback(self._on_handler_ended)

    async def _handle(self, item: ItemClaim) -> None:
        if self._is_async:
            await self._handler(item)
            return
        # A thread cannot be cancelled: the item stays in flight until its thread has ended.
        thread = self._background.start_thread(copy_context(), self._handler, item)
        cancelled: asyncio.CancelledError | None = None
        while not thread.done():
            try:
                await asyncio.wait([thread])
            except asyncio.CancelledError as error:
                cancelled = error
        # The work was done before anything could stop it.
        answer = thread.result()
        # A lambda around a coroutine function returns an awaitable.
        if inspect.isawaitable(answer):
            if cancelled is not None:
                if inspect.iscoroutine(answer):
                    answer.close()
                raise cancelled
            await answer

    def _on_handler_ended(self, task: asyncio.Task[None]) -> None:
        """Record a handler's outcome and free its slot."""
        item = self._tasks.pop(task)
        row = item._row
        in_flight = self._outcomes.in_flight
        try:
            error = task.exception()
        except asyncio.CancelledError as cancelled:
            error = cancelled
        # A handler that raises a CancelledError of its own, as from something that it awaited, has
        # failed.
        was_cancelled = isinstance(error, asyncio.CancelledError) and task.cancelling() > 0
        stopped = was_cancelled or (isinstance(error, Draining) and self._shutdown.begun)
        item._on_handler_ended()
        if not item._is_settled:
            self._commands.append((item, self._outcome(item, error, stopped=stopped)))
        elif item._unanswered:
            in_flight.ending(row.fence)
        else:
            in_flight.drop(row.fence)
        in_flight.release_slot(row.fence)
        self._outcomes.on_handled(released=stopped)
        if not self._claiming or self._shutdown.begun:
            self._submit()

    def _outcome(
        self, item: ItemClaim, error: BaseException | None, *, stopped: bool
    ) -> Ack | Release:
        """Return the command that records how a handler ended, and log a failure."""
        row = item._row
        if stopped:
            return Release(row.pk, row.fence, "its consumer stopped")
        if error is None:
            return Ack(row.pk, row.fence, row.queue)
        log.warning(
            "Item %s failed in attempt %d.",
            item._name,
            item._attempt,
            exc_info=redact(error, self._log_values),
            extra=log_fields(row, attempt=item._attempt),
        )
        return item._failure(None, repr(error))

    def _submit(self) -> None:
        """Submit the outcomes of ended handlers."""
        commands = self._commands
        self._commands = []
        for item, command in commands:
            item._mark_settled()
            self._unanswered += 1
            self._outcomes.writer.enqueue(command, partial(self._on_answer, item))
            self._outcomes.in_flight.ending(item._row.fence)
        self._deregister_if_done()

    def _on_answer(self, item: ItemClaim, command: Any, outcome: Any) -> None:
        self._outcomes.in_flight.drop(item._row.fence)
        self._unanswered -= 1
        if not self._unanswered:
            self._all_answered.set()
            self._deregister_if_done()
        self._outcomes.report(item._row, command, outcome)
        self._outcomes.on_recorded(item._row, command, outcome)
        if isinstance(outcome, (Refused, StoreError)):
            log.error(
                "Could not record the outcome of item %s: %s",
                item._name,
                outcome,
                extra=log_fields(item._row),
            )

    def _deregister_if_done(self) -> None:
        """Deregister this consumer once it is stopped, executes nothing and has all its answers."""
        if not self._claiming and not self._tasks and not self._unanswered:
            self._claimers.remove_consumer(self)
