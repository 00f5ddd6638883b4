"""Wake callers that wait for a change in the store, made here or in another process.

A notification only means that there may be something to see. It may be lost, so waiting callers
also poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

DEBOUNCE_SECONDS = 0.002
"""Notifications that follow another within this time are merged into one."""


class Burst(Enum):
    """What becomes of a notification that arrives now."""

    NONE = auto()
    """It goes out at once, and begins a burst."""
    BEGUN = auto()
    """It goes out when the burst is over."""
    MERGED = auto()
    """One already goes out when the burst is over, and covers this one."""


class ChangeNotifier:
    """Count changes and wake the callers that wait for one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._subscribers: list[Callable[[], None]] = []
        self._observers: list[Callable[[], object]] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_scheduled = False
        """Whether the loop will take a notification from another thread."""
        self._burst = Burst.NONE
        self._looking: asyncio.TimerHandle | None = None
        self.count = 0
        """Number of changes so far that a caller may wait for."""

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop after every change that the store reports."""
        self._subscribers.append(callback)

    def observe(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the loop after every change, including those made here."""
        self._observers.append(callback)

    async def wait(self, timeout: float, since: int) -> None:
        """Wait until something changes, for `timeout` seconds at most.

        `since` is `count` from before the caller read the store, so that a change in between is not
        missed.
        """
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
        """Wake all waiting callers after a change that this process knows of.

        Call it on the loop.
        """
        self.count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        for callback in self._observers:
            callback()

    def notify_threadsafe(self) -> None:
        """Notify waiting callers that something changed in the store.

        May be called from any thread. The first notification goes out at once. Those within
        `DEBOUNCE_SECONDS` of it are merged into one, which goes out when that time is over, so the
        last of a burst is not lost.
        """
        if not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._arrived)
            except RuntimeError:
                # The loop is closed.
                return

    def poll_every(self, seconds: float) -> None:
        """Notify every `seconds` even without a change: not every system delivers notifications."""
        self._looking = self._loop.call_later(seconds, self._poll, seconds)

    def stop(self) -> None:
        self.notify()
        if self._looking is not None:
            self._looking.cancel()

    def _poll(self, seconds: float) -> None:
        self._changed()
        self.poll_every(seconds)

    def _arrived(self) -> None:
        # Reset it before callers read the store: a later change is another notification.
        self._is_scheduled = False
        if self._burst is Burst.NONE:
            self._begin_burst()
        else:
            self._burst = Burst.MERGED

    def _begin_burst(self) -> None:
        self._burst = Burst.BEGUN
        self._loop.call_later(DEBOUNCE_SECONDS, self._end_burst)
        self._changed()

    def _end_burst(self) -> None:
        burst, self._burst = self._burst, Burst.NONE
        if burst is Burst.MERGED:
            self._begin_burst()

    def _changed(self) -> None:
        self.notify()
        for callback in self._subscribers:
            callback()
