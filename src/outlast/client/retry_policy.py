"""Decide which requests are repeated, and after how long."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

REPEATED = frozenset({429, 502, 503, 504})
"""The statuses of answers after which a request is repeated."""
JITTER = 0.5
"""The share of a pause that is random."""
PAUSE_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait for an answer, and how to repeat a request."""

    timeout: float
    """Seconds to wait for one answer."""
    patience: float
    """Seconds for all attempts together."""
    backoff: float
    backoff_max: float
    chance: Callable[[], float] = random.random

    def pause(self, attempts: int, headers: Mapping[str, str] | None = None) -> float:
        """Return how many seconds to wait after this many attempts.

        `headers` are those of the last answer. Its Retry-After is the least.
        """
        longest = min(self.backoff_max, self.backoff * 2.0 ** min(attempts - 1, 64))
        pause = longest * (1 - JITTER * self.chance())
        return max(pause, _retry_after(headers or {}))


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of the header Retry-After, or 0.0 if it has none. It may be a date."""
    text = headers.get("retry-after", "").strip()
    return min(float(text), PAUSE_MAX) if text.isdecimal() else 0.0
