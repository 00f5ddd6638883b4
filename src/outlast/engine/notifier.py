"""Changes: who waits for something in the store is woken when anything changes there, here or in another process.

A ring says only that there is something to see. One may be lost, so who waits also looks now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

DEBOUNCE_SECONDS = 0.002
"""Within this time after a notification, all that follow are one."""


class ChangeNotifier:
    def __init__(self, loop: asyncio.AbstractEventLoop, rung: Callable[[], None]) -> None:
        self._loop, self._on_change = loop, rung
        self._waiting: set[asyncio.Future[None]] = set()
        self._on_its_way = self._pausing = self._again = False
        self._looking: asyncio.TimerHandle | None = None
        self.count = 0
        """How often anything that somebody may wait for has changed."""

    async def wait(self, timeout: float, since: int) -> None:
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

    def notify(self) -> None:
        """Something changed that is known here already."""
        self.count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def notify_threadsafe(self) -> None:
        """Notify those who wait that something changed in the store. From any thread.

        The first notification goes out at once. Those within `DEBOUNCE_SECONDS` of it are one, which
        goes out when that time is over: the last of a burst is not lost.
        """
        if not self._on_its_way:
            self._on_its_way = True
            try:
                self._loop.call_soon_threadsafe(self._arrived)
            except RuntimeError:
                return  # the loop is closed

    def poll_every(self, seconds: float) -> None:
        """Also without a ring: not every system has bells."""
        self._looking = self._loop.call_later(seconds, self._poll, seconds)

    def stop(self) -> None:
        self.notify()
        if self._looking is not None:
            self._looking.cancel()

    def _poll(self, seconds: float) -> None:
        self._changed()
        self.poll_every(seconds)

    def _arrived(self) -> None:
        self._on_its_way = (
            False  # before anybody looks: a change from now on is another notification
        )
        if self._pausing:
            self._again = True
        else:
            self._pausing = True
            self._loop.call_later(DEBOUNCE_SECONDS, self._paused)
            self._changed()

    def _paused(self) -> None:
        self._pausing = False
        if self._again:
            self._again = False
            self._arrived()

    def _changed(self) -> None:
        self.notify()
        self._on_change()
