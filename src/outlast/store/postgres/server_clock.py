"""Estimate the server's time between its answers."""

from __future__ import annotations

import time
from collections.abc import Callable


class ServerClock:
    """The time of the PostgreSQL server, or of a clock that takes its place in a test."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._ahead = 0.0
        """The server's clock minus this process's monotonic clock."""

    def now(self) -> float:
        """Return the current time in seconds since 1970."""
        return self._clock() if self._clock is not None else self._ahead + time.monotonic()

    def learn(self, now: float) -> None:
        """Note the server's time, which an answer contained."""
        self._ahead = now - time.monotonic()

    def to_send(self) -> float | None:
        """Return the time to send with a call. None means the server's own time."""
        return None if self._clock is None else self._clock()
