"""Open and leave an Outlast, and connect it to signals and the HTTP server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.execution.detached import Shield, spawn_detached, wait_uncancelled
from outlast.execution.threads import Executor
from outlast.execution.tracing import FLUSH_SECONDS
from outlast.shutdown.cleanup import CleanupRunner, end
from outlast.shutdown.drain import TICK_SECONDS
from outlast.shutdown.process_shutdown import ProcessShutdown, end_now, told_to_end

if TYPE_CHECKING:
    from outlast.api.outlast import Outlast
    from outlast.engine.engine import Engine
    from outlast.http import Server
    from outlast.shutdown.report import CleanupResult

T = TypeVar("T")
AFTER_CLEANUP_SECONDS = 1.0
"""Seconds of a drain's grace that are reserved for the report and for leaving the store."""
DEREGISTER_SECONDS = 1.0
"""How long a cancelled leave still waits for a store that does not answer."""

_leaving: set[asyncio.Task[Any]] = set()
"""Tasks that are leaving an Outlast. They must not be interrupted meanwhile."""


class AppLifecycle:
    """Open and leave one Outlast, any number of times."""

    def __init__(
        self, lifespan: Callable[[Outlast], AbstractAsyncContextManager[Any]] | None
    ) -> None:
        self.lifespan = lifespan
        self._lifespan_stack = AsyncExitStack()
        self.cleanup = CleanupRunner()
        self.own_process_exit_code: int | None = None
        """The exit code after a request to end, if Outlast is the program of this process.

        None otherwise.
        """
        self.is_portal = False
        """Whether the sync portal owns this app. It handles signals in its program's own thread."""
        self.exit_code = 0
        """The exit code of a process of our own after a request to end."""
        self.hung = False
        """Whether something still executed when the app was left."""
        self.process: ProcessShutdown | None = None
        self._server: Server | None = None
        self._leave_app: Callable[[], Coroutine[Any, Any, None]]
        self._engine: Engine | None = None
        self._opener: asyncio.Task[Any] | None = None
        self._cancelled = self._left = False
        self._shield = Shield()

    def check(self) -> None:
        """Raise SystemExit in a process of our own that was told to end.

        Call this before anything is opened: such a process starts nothing more.
        """
        if self.own_process_exit_code is not None and (code := told_to_end()) is not None:
            raise SystemExit(code)

    async def open(self, app: Outlast, engine: Engine) -> None:
        """Install the signal handlers, start the HTTP server and enter the lifespan."""
        self._cancelled = self._left = False
        self._engine, self._opener, self._leave_app = engine, asyncio.current_task(), app.__aexit__
        if not app._inline:
            self.process = ProcessShutdown(engine.drain, ours=self.own_process_exit_code)
            if engine.settings.signals and not self.is_portal:
                self.process.again = lambda: engine.loop.call_soon_threadsafe(self._drained, None)
                self.process.install()
                engine.shutdown.finished.add_done_callback(self._drained)
            if engine.settings.http:
                from outlast.http import Server

                self._server = Server(app, engine.settings.http)
                self._server.start()
        if self.own_process_exit_code is not None:
            engine.loop.set_default_executor(Executor())
        if self.lifespan is not None:
            await self._lifespan_stack.enter_async_context(self.lifespan(app))

    def _drained(self, _: object) -> None:
        """Cancel the task that opened the app, after the drain of a signal that ends the program.

        The app's block is left as if it had been interrupted. A process of our own leaves by
        itself, unless it was still opening.
        """
        process, opener, engine = self.process, self._opener, self._engine
        if process is None or opener is None or engine is None or self._left or self._cancelled:
            return
        if not process.ends or (self.own_process_exit_code is not None and engine.working):
            return
        if opener in _leaving:
            # The task is leaving another Outlast. Try again later.
            engine.loop.call_later(TICK_SECONDS, self._drained, None)
        elif engine.shutdown.finished.done():
            self._cancelled = True
            if not opener.cancel(f"drain: {engine.shutdown.reason}"):
                # The app was entered by hand, and the task that did so has ended.
                self._opener = engine.loop.create_task(self._leave_app())

    async def leave(self, engine: Engine, why: str) -> None:
        """Wait for a drain in progress, release everything, clean up and deregister the worker.

        Raise SystemExit in a process of our own that was told to end before it was open.
        """
        task = asyncio.current_task()
        assert task is not None
        _leaving.add(task)
        try:
            with Shield() as self._shield:
                await self._leave(engine, why)
        finally:
            _leaving.discard(task)
        if self._cancelled and self.own_process_exit_code is not None:
            raise SystemExit(self.exit_code)

    async def _leave(self, engine: Engine, why: str) -> None:
        """Leave the app, and raise a cancellation only when all is released.

        A timeout around the app's block may cancel the task meanwhile. What still executes must be
        known before the worker is deregistered.
        """
        shutdown, lifespan_stack, task = (
            engine.shutdown,
            self._lifespan_stack,
            asyncio.current_task(),
        )
        assert task is not None
        self._lifespan_stack, self._left, before = AsyncExitStack(), True, task.cancelling()
        process = self.process if self.own_process_exit_code is None else None
        if process is not None and process.signal is None and shutdown.finished.done():
            shutdown.renew_grace(time.monotonic())
        try:
            await self._close(engine, why)
        finally:
            draining = shutdown.draining
            try:
                await self._clean_up(engine, lifespan_stack)
            finally:
                try:
                    if draining:
                        await engine.spans.flush(
                            engine.in_thread, min(FLUSH_SECONDS, shutdown.seconds_left / 2)
                        )
                finally:
                    try:
                        leaving = spawn_detached(engine.loop, engine.deregister())
                        soon = partial(engine.loop.call_later, DEREGISTER_SECONDS, leaving.cancel)
                        if task.cancelling() > before:
                            # The task was cancelled while it was leaving.
                            soon()
                        await self._wait_uncancelled(leaving, on_cancelled=soon)
                    finally:
                        self._engine, self.hung = None, bool(engine.in_flight.hung_ids())
                        await self._stop_listening(engine)
                if self.own_process_exit_code is not None and self.hung and draining:
                    # Hung threads would delay an orderly exit.
                    end_now(self.exit_code)

    async def _wait_uncancelled(
        self, work: asyncio.Future[T], on_cancelled: Callable[[], object] = lambda: None
    ) -> T:
        """Wait for work that must end (see `wait_uncancelled`).

        An anyio scope interrupts the leave once.
        """

        def interrupted() -> None:
            self._shield.raise_up()
            on_cancelled()

        return await wait_uncancelled(work, on_cancelled=interrupted)

    async def _close(self, engine: Engine, why: str) -> None:
        drain, engine.closing_task = engine.drain, asyncio.current_task()
        try:
            if engine.shutdown.draining:
                await self._wait_uncancelled(engine.shutdown.finished)
                await drain.wait_expedited()
        finally:
            await self._wait_uncancelled(spawn_detached(engine.loop, engine.close(why)))

    async def _clean_up(self, engine: Engine, lifespan_stack: AsyncExitStack) -> None:
        """Call the clean-up hooks, then leave the lifespan.

        The lifespan is last because runs may have used it until they ended.
        """
        shutdown, loop = engine.shutdown, engine.loop
        try:
            if not shutdown.draining:
                try:
                    hooks = spawn_detached(
                        loop, self.cleanup.run(engine, engine.settings.close_timeout)
                    )
                    await self._wait_uncancelled(hooks, on_cancelled=self.cleanup.cut)
                finally:
                    await lifespan_stack.aclose()
            else:
                await self._clean_up_in_time(engine, lifespan_stack)
        finally:
            # Also for a drain that began meanwhile. It has nothing left to drain.
            if shutdown.draining:
                await self._wait_uncancelled(spawn_detached(loop, self._report(engine)))

    async def _clean_up_in_time(self, engine: Engine, lifespan_stack: AsyncExitStack) -> None:
        report, hooks = engine.drain.report, spawn_detached(engine.loop, self._call_hooks(engine))
        try:
            await self._wait_uncancelled(hooks, on_cancelled=self.cleanup.cut)
        finally:
            # Not in a new task: the lifespan must end in the task that entered it.
            report.cleanup, until = hooks.result()
            report.cleanup.append(await end(engine, "lifespan", lifespan_stack.aclose, until))

    async def _call_hooks(self, engine: Engine) -> tuple[list[CleanupResult], float]:
        """Call the clean-up hooks.

        Return their results, and the loop time at which clean-up must be over.
        """
        shutdown, clock = engine.shutdown, engine.loop.time
        # If the drain began during the close, the loop may not have noticed it yet.
        await asyncio.wait([shutdown.finished])
        until = clock() + max(0.0, shutdown.seconds_left - AFTER_CLEANUP_SECONDS)
        return await self.cleanup.run(engine, until - clock(), before=1), until

    async def _report(self, engine: Engine) -> None:
        await asyncio.wait([engine.shutdown.finished])
        await engine.drain.write_report(leaving=True)

    async def _stop_listening(self, engine: Engine) -> None:
        server, process = self._server, self.process
        self._server = self.process = None
        self.exit_code = 0 if process is None else process.code
        try:
            if server is not None:
                await server.stopped(0.2 if engine.shutdown.draining else 2.0)
        finally:
            if process is not None and not self.is_portal:
                process.restore()
                if (
                    self._cancelled
                    and asyncio.current_task() is self._opener
                    and self._opener is not None
                ):
                    # This was our own cancellation. What follows is the effect of the signal.
                    self._opener.uncancel()
                process.raise_again()
                # Here asyncio turns the signal into a KeyboardInterrupt, by a cancellation.
                await asyncio.sleep(0)
