"""The door: how an Outlast is opened and left, and what signals and the HTTP server have to do with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.drain.cleanup import Cleanup, end
from outlast.drain.drain import TICK_SECONDS
from outlast.drain.process import Process, end_now, told_to_end
from outlast.replay.own import Shield, own, whole
from outlast.replay.threads import Executor
from outlast.telemetry.spans import FLUSH_SECONDS

if TYPE_CHECKING:
    from outlast.app.house import House
    from outlast.app.outlast import Outlast
    from outlast.drain.report import CleanUp
    from outlast.http import Server

T = TypeVar("T")
AFTER_CLEANUP_SECONDS = 1.0
"""Of a drain's grace, for what comes after clean-up: the report, and leaving the store."""
STRIKE_OFF_SECONDS = 1.0
"""How long whoever leaves, and is cancelled meanwhile, still waits for a store that does not answer."""

_leaving: set[asyncio.Task[Any]] = set()
"""Tasks that are leaving an Outlast: they must not be interrupted in it."""


class Door:
    """One an Outlast; it may be opened and left again and again."""

    def __init__(self, lifespan: Callable[[Outlast], AbstractAsyncContextManager[Any]] | None) -> None:
        self.lifespan = lifespan
        self._living = AsyncExitStack()
        self.cleanup = Cleanup()
        self.ours: int | None = None
        """The exit code of a process of Outlast's own that was told to end."""
        self.is_portal = False
        """The sync face's, which sees to the signals in its program's own thread."""
        self.exit_code = 0
        """What a process of ours that was told to end exits with."""
        self.hung = False
        """Something still executed when it was left."""
        self.process: Process | None = None
        self._server: Server | None = None
        self._leave_app: Callable[[], Coroutine[Any, Any, None]]
        self._house: House | None = None
        self._opener: asyncio.Task[Any] | None = None
        self._cancelled = self._left = False
        self._shield = Shield()

    def check(self) -> None:
        """Before anything is opened: a process of ours that was told to end begins nothing more."""
        if self.ours is not None and (code := told_to_end()) is not None:
            raise SystemExit(code)

    async def open(self, app: Outlast, house: House) -> None:
        """Listen for signals and for who asks over HTTP, and enter the lifespan."""
        self._cancelled = self._left = False
        self._house, self._opener, self._leave_app = house, asyncio.current_task(), app.__aexit__
        if not app._inline:
            self.process = Process(house.drain, ours=self.ours)
            if house.settings.signals and not self.is_portal:
                self.process.again = lambda: house.loop.call_soon_threadsafe(self._drained, None)
                self.process.install()
                house.drain.over.add_done_callback(self._drained)
            if house.settings.http:
                from outlast.http import Server

                self._server = Server(app, house.settings.http)
                self._server.start()
        if self.ours is not None:
            house.loop.set_default_executor(Executor())
        if self.lifespan is not None:
            await self._living.enter_async_context(self.lifespan(app))

    def _drained(self, _: object) -> None:
        """A signal that ends the program has begun to: its block is left as if it had been interrupted. A process of ours leaves by
        itself, unless it was still being opened."""
        process, opener, house = self.process, self._opener, self._house
        if process is None or opener is None or house is None or self._left or self._cancelled:
            return
        if not process.ends or (self.ours is not None and house.working):
            return
        if opener in _leaving:  # another Outlast
            house.loop.call_later(TICK_SECONDS, self._drained, None)
        elif house.drain.over.done():
            self._cancelled = True
            if not opener.cancel(
                f"drain: {house.drain.reason}"
            ):  # it was entered by hand, and its task has ended
                self._opener = house.loop.create_task(self._leave_app())

    async def leave(self, house: House, why: str) -> None:
        """Wait for a drain that is under way, give everything back, clean up, and be struck off."""
        task = asyncio.current_task()
        assert task is not None
        _leaving.add(task)
        try:
            with Shield() as self._shield:
                await self._leave(house, why)
        finally:
            _leaving.discard(task)
        if self._cancelled and self.ours is not None:
            raise SystemExit(self.exit_code)  # told to end before it was open

    async def _leave(self, house: House, why: str) -> None:
        """Whoever leaves may be cancelled meanwhile, as by a time-out around the block. That is raised when all is given back: what still
        executes must be known before the worker is struck off."""
        drain, living, task = house.drain, self._living, asyncio.current_task()
        assert task is not None
        self._living, self._left, before = AsyncExitStack(), True, task.cancelling()
        process = self.process if self.ours is None else None
        if process is not None and process.signal is None and drain.over.done():
            process.renew_grace(time.monotonic())
        try:
            await self._close(house, why)
        finally:
            draining = drain.layer is not None
            try:
                await self._clean_up(house, living)
            finally:
                try:
                    if draining:
                        await house.spans.flush(house, min(FLUSH_SECONDS, drain.left / 2))
                finally:
                    try:
                        leaving = own(house.loop, house.leave())
                        soon = partial(house.loop.call_later, STRIKE_OFF_SECONDS, leaving.cancel)
                        if task.cancelling() > before:  # since it leaves
                            soon()
                        await self._whole(leaving, told=soon)
                    finally:
                        self._house, self.hung = None, bool(house.hung)
                        await self._stop_listening(house)
                if self.ours is not None and self.hung and draining:
                    end_now(self.exit_code)  # what hangs would hold up an orderly end

    async def _whole(self, work: asyncio.Future[T], told: Callable[[], object] = lambda: None) -> T:
        """Wait for something that must end, see `whole`. A scope of anyio interrupts the leaving once."""

        def interrupted() -> None:
            self._shield.raise_up()
            told()

        return await whole(work, told=interrupted)

    async def _close(self, house: House, why: str) -> None:
        drain, house.leaver = house.drain, asyncio.current_task()
        try:
            if drain.layer is not None:
                await self._whole(drain.over)
                await drain.hurried()
        finally:
            await self._whole(own(house.loop, house.close(why)))

    async def _clean_up(self, house: House, living: AsyncExitStack) -> None:
        """The lifespan last: what executed here may have used it to its end."""
        drain, loop = house.drain, house.loop
        try:
            if drain.layer is None:
                try:
                    hooks = own(loop, self.cleanup.run(house, house.settings.close_timeout))
                    await self._whole(hooks, told=self.cleanup.cut)
                finally:
                    await living.aclose()
            else:
                await self._clean_up_in_time(house, living)
        finally:
            if drain.layer is not None:  # also if it began meanwhile: then there is nothing left to drain
                await self._whole(own(loop, self._report(house)))

    async def _clean_up_in_time(self, house: House, living: AsyncExitStack) -> None:
        report, hooks = house.drain.report, own(house.loop, self._call_hooks(house))
        try:
            await self._whole(hooks, told=self.cleanup.cut)
        finally:  # not in a task: it must end where it began
            report.cleanup, until = hooks.result()
            report.cleanup.append(await end(house, "lifespan", living.aclose, until))

    async def _call_hooks(self, house: House) -> tuple[list[CleanUp], float]:
        """And when the clean-up must be over, on the loop's clock."""
        drain, clock = house.drain, house.loop.time
        await asyncio.wait([drain.over])  # if it began in the close, the loop may not have heard of it
        until = clock() + max(0.0, drain.left - AFTER_CLEANUP_SECONDS)
        return await self.cleanup.run(house, until - clock(), before=1), until

    async def _report(self, house: House) -> None:
        await asyncio.wait([house.drain.over])
        await house.drain.write_report(leaving=True)

    async def _stop_listening(self, house: House) -> None:
        server, process = self._server, self.process
        self._server = self.process = None
        self.exit_code = 0 if process is None else process.code
        try:
            if server is not None:
                await server.stopped(0.2 if house.drain.layer is not None else 2.0)
        finally:
            if process is not None and not self.is_portal:
                process.restore()
                if self._cancelled and asyncio.current_task() is self._opener and self._opener is not None:
                    self._opener.uncancel()  # ours: what comes now is the signal's own doing
                process.raise_again()
                await asyncio.sleep(0)  # where asyncio makes a KeyboardInterrupt of it, by a cancellation
