"""The door: how an Outlast is opened and left, and what signals and the HTTP server have to do with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.execution.detached import Shield, spawn_detached, wait_uncancelled
from outlast.execution.threads import Executor
from outlast.shutdown.cleanup import CleanupRunner, end
from outlast.shutdown.drain import TICK_SECONDS
from outlast.shutdown.process_shutdown import ProcessShutdown, end_now, told_to_end
from outlast.telemetry.spans import FLUSH_SECONDS

if TYPE_CHECKING:
    from outlast.api.outlast import Outlast
    from outlast.engine.engine import Engine
    from outlast.http import Server
    from outlast.shutdown.report import CleanupResult

T = TypeVar("T")
AFTER_CLEANUP_SECONDS = 1.0
"""Of a drain's grace, for what comes after clean-up: the report, and leaving the store."""
DEREGISTER_SECONDS = 1.0
"""How long whoever leaves, and is cancelled meanwhile, still waits for a store that does not answer."""

_leaving: set[asyncio.Task[Any]] = set()
"""Tasks that are leaving an Outlast: they must not be interrupted in it."""


class AppLifecycle:
    """One an Outlast; it may be opened and left again and again."""

    def __init__(
        self, lifespan: Callable[[Outlast], AbstractAsyncContextManager[Any]] | None
    ) -> None:
        self.lifespan = lifespan
        self._lifespan_stack = AsyncExitStack()
        self.cleanup = CleanupRunner()
        self.own_process_exit_code: int | None = None
        """The exit code of a process of Outlast's own that was told to end."""
        self.is_portal = False
        """The sync face's, which sees to the signals in its program's own thread."""
        self.exit_code = 0
        """What a process of ours that was told to end exits with."""
        self.hung = False
        """Something still executed when it was left."""
        self.process: ProcessShutdown | None = None
        self._server: Server | None = None
        self._leave_app: Callable[[], Coroutine[Any, Any, None]]
        self._engine: Engine | None = None
        self._opener: asyncio.Task[Any] | None = None
        self._cancelled = self._left = False
        self._shield = Shield()

    def check(self) -> None:
        """Before anything is opened: a process of ours that was told to end begins nothing more."""
        if self.own_process_exit_code is not None and (code := told_to_end()) is not None:
            raise SystemExit(code)

    async def open(self, app: Outlast, engine: Engine) -> None:
        """Listen for signals and for who asks over HTTP, and enter the lifespan."""
        self._cancelled = self._left = False
        self._engine, self._opener, self._leave_app = engine, asyncio.current_task(), app.__aexit__
        if not app._inline:
            self.process = ProcessShutdown(engine.drain, ours=self.own_process_exit_code)
            if engine.settings.signals and not self.is_portal:
                self.process.again = lambda: engine.loop.call_soon_threadsafe(self._drained, None)
                self.process.install()
                engine.drain.over.add_done_callback(self._drained)
            if engine.settings.http:
                from outlast.http import Server

                self._server = Server(app, engine.settings.http)
                self._server.start()
        if self.own_process_exit_code is not None:
            engine.loop.set_default_executor(Executor())
        if self.lifespan is not None:
            await self._lifespan_stack.enter_async_context(self.lifespan(app))

    def _drained(self, _: object) -> None:
        """A signal that ends the program has begun to: its block is left as if it had been interrupted. A process of ours leaves by
        itself, unless it was still being opened."""
        process, opener, engine = self.process, self._opener, self._engine
        if process is None or opener is None or engine is None or self._left or self._cancelled:
            return
        if not process.ends or (self.own_process_exit_code is not None and engine.working):
            return
        if opener in _leaving:  # another Outlast
            engine.loop.call_later(TICK_SECONDS, self._drained, None)
        elif engine.drain.over.done():
            self._cancelled = True
            if not opener.cancel(
                f"drain: {engine.drain.reason}"
            ):  # it was entered by hand, and its task has ended
                self._opener = engine.loop.create_task(self._leave_app())

    async def leave(self, engine: Engine, why: str) -> None:
        """Wait for a drain that is under way, give everything back, clean up, and be struck off."""
        task = asyncio.current_task()
        assert task is not None
        _leaving.add(task)
        try:
            with Shield() as self._shield:
                await self._leave(engine, why)
        finally:
            _leaving.discard(task)
        if self._cancelled and self.own_process_exit_code is not None:
            raise SystemExit(self.exit_code)  # told to end before it was open

    async def _leave(self, engine: Engine, why: str) -> None:
        """Whoever leaves may be cancelled meanwhile, as by a time-out around the block. That is raised when all is given back: what still
        executes must be known before the worker is struck off."""
        drain, lifespan_stack, task = engine.drain, self._lifespan_stack, asyncio.current_task()
        assert task is not None
        self._lifespan_stack, self._left, before = AsyncExitStack(), True, task.cancelling()
        process = self.process if self.own_process_exit_code is None else None
        if process is not None and process.signal is None and drain.over.done():
            process.renew_grace(time.monotonic())
        try:
            await self._close(engine, why)
        finally:
            draining = drain.layer is not None
            try:
                await self._clean_up(engine, lifespan_stack)
            finally:
                try:
                    if draining:
                        await engine.spans.flush(engine, min(FLUSH_SECONDS, drain.left / 2))
                finally:
                    try:
                        leaving = spawn_detached(engine.loop, engine.deregister())
                        soon = partial(engine.loop.call_later, DEREGISTER_SECONDS, leaving.cancel)
                        if task.cancelling() > before:  # since it leaves
                            soon()
                        await self._wait_uncancelled(leaving, on_cancelled=soon)
                    finally:
                        self._engine, self.hung = None, bool(engine.hung)
                        await self._stop_listening(engine)
                if self.own_process_exit_code is not None and self.hung and draining:
                    end_now(self.exit_code)  # what hangs would hold up an orderly end

    async def _wait_uncancelled(
        self, work: asyncio.Future[T], on_cancelled: Callable[[], object] = lambda: None
    ) -> T:
        """Wait for something that must end, see `wait_uncancelled`. A scope of anyio interrupts the leaving once."""

        def interrupted() -> None:
            self._shield.raise_up()
            on_cancelled()

        return await wait_uncancelled(work, on_cancelled=interrupted)

    async def _close(self, engine: Engine, why: str) -> None:
        drain, engine.closing_task = engine.drain, asyncio.current_task()
        try:
            if drain.layer is not None:
                await self._wait_uncancelled(drain.over)
                await drain.wait_expedited()
        finally:
            await self._wait_uncancelled(spawn_detached(engine.loop, engine.close(why)))

    async def _clean_up(self, engine: Engine, lifespan_stack: AsyncExitStack) -> None:
        """The lifespan last: what executed here may have used it to its end."""
        drain, loop = engine.drain, engine.loop
        try:
            if drain.layer is None:
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
            if (
                drain.layer is not None
            ):  # also if it began meanwhile: then there is nothing left to drain
                await self._wait_uncancelled(spawn_detached(loop, self._report(engine)))

    async def _clean_up_in_time(self, engine: Engine, lifespan_stack: AsyncExitStack) -> None:
        report, hooks = engine.drain.report, spawn_detached(engine.loop, self._call_hooks(engine))
        try:
            await self._wait_uncancelled(hooks, on_cancelled=self.cleanup.cut)
        finally:  # not in a task: it must end where it began
            report.cleanup, until = hooks.result()
            report.cleanup.append(await end(engine, "lifespan", lifespan_stack.aclose, until))

    async def _call_hooks(self, engine: Engine) -> tuple[list[CleanupResult], float]:
        """And when the clean-up must be over, on the loop's clock."""
        drain, clock = engine.drain, engine.loop.time
        await asyncio.wait(
            [drain.over]
        )  # if it began in the close, the loop may not have heard of it
        until = clock() + max(0.0, drain.left - AFTER_CLEANUP_SECONDS)
        return await self.cleanup.run(engine, until - clock(), before=1), until

    async def _report(self, engine: Engine) -> None:
        await asyncio.wait([engine.drain.over])
        await engine.drain.write_report(leaving=True)

    async def _stop_listening(self, engine: Engine) -> None:
        server, process = self._server, self.process
        self._server = self.process = None
        self.exit_code = 0 if process is None else process.code
        try:
            if server is not None:
                await server.stopped(0.2 if engine.drain.layer is not None else 2.0)
        finally:
            if process is not None and not self.is_portal:
                process.restore()
                if (
                    self._cancelled
                    and asyncio.current_task() is self._opener
                    and self._opener is not None
                ):
                    self._opener.uncancel()  # ours: what comes now is the signal's own doing
                process.raise_again()
                await asyncio.sleep(
                    0
                )  # where asyncio makes a KeyboardInterrupt of it, by a cancellation
