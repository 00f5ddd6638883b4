"""Saying what goes on being wrong: at once, and then at growing intervals. A store may be away for long, or have something in it that is tried again and again."""

from __future__ import annotations

from collections.abc import Callable

PAUSE_SECONDS_MAX = 60.0
"""Between two lines in the log."""


class LogBackoff:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pause, self._said_at = 0.0, 0.0

    def should_log(self) -> bool:
        """Whether to say it now. Whoever asks and is told so says it."""
        now = self._clock()
        if self._pause and now < self._said_at + self._pause:
            return False
        self._pause, self._said_at = min(max(1.0, self._pause * 2), PAUSE_SECONDS_MAX), now
        return True

    def reset(self) -> None:
        """It is in order: the next time is news."""
        self._pause = 0.0
