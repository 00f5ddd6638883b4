"""Do the work of leaving an app. The coordinator calls the steps in order.

Each step runs even if the leaving task was cancelled during an earlier one, for example by a
time-out around the app's block. What still executes must be known before the worker is
deregistered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.errors import StoreError
from outlast.execution.detached import Shield, wait_uncancelled
from outlast.execution.shutdown_state import ShutdownState
from outlast.execution.tracing import FLUSH_SECONDS
from outlast.shutdown.cleanup import CleanupRunner, end
from outlast.shutdown.drain_steps import DrainSteps
from outlast.shutdown.report import CleanupResult
from outlast.shutdown.report_builder import ReportBuilder

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

log = logging.getLogger("outlast")
T = TypeVar("T")

AFTER_CLEANUP_SECONDS = 1.0
"""Seconds of a drain's grace that are reserved for the report and for leaving the store."""
AFTER_STORE_SECONDS = 0.5
"""Seconds of a drain's grace that are reserved for what follows the store's close."""
DEREGISTER_SECONDS = 1.0
"""How long a cancelled leave still waits for a store that does not answer."""


class CloseSteps:
    """Leave one app in one task."""

    def __init__(
        self,
        engine: Engine,
        state: ShutdownState,
        shield: Shield,
        drain_steps: DrainSteps,
        reporter: ReportBuilder,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancellations_before = task.cancelling()
        self._engine = engine
        self._state = state
        self._shield = shield
        self._drain_steps = drain_steps
        self._reporter = reporter

    async def close(self, why: str, left_by: int | None) -> None:
        """Wait for a drain in progress, then stop and release everything that executes.

        `left_by` is the thread that leaves the app, in a sync program.
        """
        try:
            if self._state.draining:
                await self._wait(self._state.finished)
                await self._drain_steps.wait_expedited()
        finally:
            closing = self._close_engine(why, left_by)
            await self._wait(self._engine.background.spawn_detached(closing))

    async def _close_engine(self, why: str, left_by: int | None) -> None:
        self._state.begin_close()
        await self._engine.close(why, left_by_task=self._task, left_by_thread=left_by)

    async def clean_up(
        self, cleanup: CleanupRunner, exit_lifespan: Callable[[], Awaitable[Any]]
    ) -> None:
        """Call the clean-up hooks, then exit the lifespan.

        The lifespan is last because runs may have used it until they ended. It ends in the task
        that entered it.
        """
        engine = self._engine
        if self._state.draining:
            hooks = engine.background.spawn_detached(self._call_hooks_in_time(cleanup))
            try:
                await self._wait(hooks, on_cancelled=cleanup.cut)
            finally:
                results, until = hooks.result()
                results.append(await end("lifespan", exit_lifespan, until))
                self._reporter.note_cleanup(results)
        else:
            calls = cleanup.run(engine.background.pool, engine.settings.close_timeout)
            try:
                await self._wait(engine.background.spawn_detached(calls), on_cancelled=cleanup.cut)
            finally:
                await exit_lifespan()

    async def _call_hooks_in_time(
        self, cleanup: CleanupRunner
    ) -> tuple[list[CleanupResult], float]:
        """Call the clean-up hooks in the rest of the grace.

        Return their results, and the loop time at which clean-up must be over.
        """
        clock = self._engine.loop.time
        # If the drain began during the close, the loop may not have noticed it yet.
        await asyncio.wait([self._state.finished])
        until = clock() + max(0.0, self._state.seconds_left - AFTER_CLEANUP_SECONDS)
        return await cleanup.run(self._engine.background.pool, until - clock(), before=1), until

    async def report(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Write the report of a drain, and send the spans that have ended.

        The drain may have begun during the clean-up. Then it had nothing left to drain.
        """
        if self._state.draining:
            engine = self._engine
            try:
                await self._wait(engine.background.spawn_detached(write()))
            finally:
                seconds = min(FLUSH_SECONDS, self._state.seconds_left / 2)
                await engine.services.spans.flush(engine.background.in_thread, seconds)

    async def deregister(self, deregister: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Deregister the worker. If the leaving task is cancelled, wait only a second more."""
        loop = self._engine.loop
        leaving = self._engine.background.spawn_detached(deregister())
        cancel_soon = partial(loop.call_later, DEREGISTER_SECONDS, leaving.cancel)
        if self._task.cancelling() > self._cancellations_before:
            # The task was cancelled in an earlier step.
            cancel_soon()
        await self._wait(leaving, on_cancelled=cancel_soon)

    async def _wait(
        self, work: asyncio.Future[T], on_cancelled: Callable[[], object] = lambda: None
    ) -> T:
        """Wait for work that must end (see `wait_uncancelled`).

        An anyio scope interrupts the leave once.
        """

        def interrupted() -> None:
            self._shield.raise_up()
            on_cancelled()

        return await wait_uncancelled(work, on_cancelled=interrupted)


async def deregister(engine: Engine, state: ShutdownState) -> None:
    """Deregister the worker and close the store. In a drain, use only the time that is left."""
    worker = engine.worker
    within = None
    if state.draining:
        # The exit timer ends an owned process. In another program, the grace may have passed.
        after = min(AFTER_STORE_SECONDS, state.grace / 8)
        within = max(AFTER_STORE_SECONDS, state.seconds_left - after)
    try:
        async with asyncio.timeout(within):
            try:
                await worker.deregister()
            except StoreError as error:
                log.warning(
                    "Worker %s could not be deregistered: %s. "
                    "Another worker will sweep it when its lease has expired.",
                    worker.id,
                    error,
                )
                if within is not None:
                    # The process ends while it holds its lock.
                    return
            await engine.background.in_thread(engine.close_store)
    except TimeoutError:
        log.warning(
            "Worker %s could not be deregistered: the store did not answer. "
            "Another worker will sweep it when its lease has expired.",
            worker.id,
        )
    finally:
        engine.background.pool.close()
