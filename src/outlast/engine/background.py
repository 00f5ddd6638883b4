"""Run blocking calls in threads, and keep the engine's background tasks until they end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.execution.detached import spawn_detached
from outlast.execution.shutdown_state import ShutdownState
from outlast.execution.threads import Pool
from outlast.telemetry.error_text import format_error, redact

if TYPE_CHECKING:
    from outlast.execution.run_loop import RunLoop

log = logging.getLogger("outlast")
T = TypeVar("T")


class Background:
    """The threads and tasks of one engine."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, shutdown: ShutdownState, log_values: int
    ) -> None:
        self.loop = loop
        self.pool = Pool()
        self.thread = threading.get_ident()
        """The id of the event loop's thread."""
        self.unfinished_loops: list[RunLoop] = []
        """Loops of runs whose code did not end when it was cancelled."""
        self._shutdown = shutdown
        self._log_values = log_values
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tasks_after_close: set[asyncio.Task[None]] = set()

    async def in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Call a blocking function in a thread and return its result."""
        # Use a new context: the store's work is not part of its caller's context or trace.
        return await self.pool.run(self.loop, Context(), fn, *args)

    def start_thread(
        self, context: Context, fn: Callable[..., T], *args: Any, **kwargs: Any
    ) -> asyncio.Future[T]:
        """Call a function of the program in a thread, in the given context."""
        return self.pool.run(self.loop, context, fn, *args, **kwargs)

    def spawn(self, work: Coroutine[Any, Any, T], *, quiet: bool = False) -> asyncio.Task[T]:
        """Execute a coroutine in a background task. See `track_task`."""
        return self.track_task(self.loop.create_task(work), quiet=quiet)

    def spawn_detached(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Execute a coroutine in a task that the end of the loop does not find.

        The caller keeps a reference to it, or tracks it.
        """
        return spawn_detached(self.loop, work)

    def track_task(self, task: asyncio.Task[T], *, quiet: bool = False) -> asyncio.Task[T]:
        """Keep a reference to a task until it ends.

        Log its failure unless `quiet`: then the caller that awaits the task sees it.
        """
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if quiet else self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._shutdown.closing:
            log.error(
                "A background task of Outlast failed.", exc_info=redact(error, self._log_values)
            )

    async def cancel_tasks(self, seconds: float) -> None:
        """Cancel the tracked tasks, and wait `seconds` at most until they have ended."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)

    def run_after_close(self, work: Coroutine[Any, Any, None]) -> None:
        """Execute work after the engine has closed, if the program continues. Log a failure."""
        task = self.loop.create_task(work)
        self._tasks_after_close.add(task)
        task.add_done_callback(self._on_done_after_close)

    def _on_done_after_close(self, task: asyncio.Task[None]) -> None:
        self._tasks_after_close.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.warning(
                "Work that outlived the close of the app could not be released: %s. "
                "Another worker takes it over when this process is gone.",
                format_error(error, self._log_values),
            )

    def close(self) -> None:
        """End the idle threads. Threads that execute something end with it."""
        self.pool.close()
