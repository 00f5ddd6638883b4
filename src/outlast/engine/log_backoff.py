"""Log a persistent failure at once, and then at growing intervals.

A store may be unavailable for long, or contain something that fails on every attempt.
"""

from __future__ import annotations

from collections.abc import Callable

PAUSE_SECONDS_MAX = 60.0
"""Maximum seconds between two log lines."""


class LogBackoff:
    """Decide when to log a failure that persists."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pause, self._logged_at = 0.0, 0.0

    def should_log(self) -> bool:
        """Return whether to log now. A caller that gets True must log."""
        now = self._clock()
        if self._pause and now < self._logged_at + self._pause:
            return False
        self._pause, self._logged_at = min(max(1.0, self._pause * 2), PAUSE_SECONDS_MAX), now
        return True

    def reset(self) -> None:
        """Note a success: the next failure is logged at once."""
        self._pause = 0.0
