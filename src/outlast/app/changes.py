"""Changes: who waits for something in the store is woken when anything changes there, here or in another process.

A ring says only that there is something to see. One may be lost, so who waits also looks now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

DEBOUNCE_SECONDS = 0.002


class Changes:
    def __init__(self, loop: asyncio.AbstractEventLoop, rung: Callable[[], None]) -> None:
        self._loop, self._rung = loop, rung
        self._waiting: set[asyncio.Future[None]] = set()
        self._coming = False
        self._looking: asyncio.TimerHandle | None = None
        self.count = 0
        """How often anything that somebody may wait for has changed."""

    async def next(self, timeout: float, since: int) -> None:
        """Until something changes, or so many seconds. `since` is `count` from before the store was read: a change in between
        must not be missed."""
        if self.count != since:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(future)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            return
        finally:
            self._waiting.discard(future)

    def tell(self) -> None:
        """Something changed that is known here already."""
        self.count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def ring(self) -> None:
        """Something changed in the store. From any thread; many at once are one."""
        if not self._coming:
            self._coming = True
            try:
                self._loop.call_soon_threadsafe(self._loop.call_later, DEBOUNCE_SECONDS, self._hear)
            except RuntimeError:
                return  # the loop is closed

    def look_every(self, seconds: float) -> None:
        """Also without a ring: not every system has bells."""
        self._looking = self._loop.call_later(seconds, self._look, seconds)

    def stop(self) -> None:
        self.tell()
        if self._looking is not None:
            self._looking.cancel()

    def _look(self, seconds: float) -> None:
        self._hear()
        self.look_every(seconds)

    def _hear(self) -> None:
        self._coming = False
        self.tell()
        self._rung()
