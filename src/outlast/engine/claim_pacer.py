"""Decide how much a worker may claim now.

A rolling deploy releases everything at once. A worker that claimed all it can hold in its first
second would replay it all at once, beside every other worker that does the same. New work would
wait behind it. So slots open over time, the rate of returned runs is limited, and a share of the
slots is kept for new work.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

FIRST_PART = 0.1
"""The share of the slots that is open from the start. The others open one after the other."""
FIRST_SLOTS = 10
"""Minimum of open slots once a claimed run had lost its worker to a death.

A deploy interrupts runs by the hundred, a death interrupts few.
"""
JITTER = 0.2
"""The share by which jitter may shorten a ramp, so that workers that start together diverge."""
BURST_SECONDS = 0.1
"""The burst of returned runs that may be claimed at once, in seconds of their rate."""
PORTION_SECONDS = 0.05
"""The shortest wait. A claim for every single slot or run would cost too many transactions."""


class Allowance(NamedTuple):
    """What a worker may claim now."""

    limit: int
    """Maximum number of runs to claim."""
    returned: int
    """How many of them may have been interrupted before."""
    new_first: bool = False
    """Whether to claim only new runs first, because it is their turn."""


class ClaimPacer:
    """Open slots over time and limit the rate of returned runs.

    The pacer does no I/O. The caller passes the time, from any clock that does not jump, and the
    source of randomness. Without one there is no jitter.
    """

    def __init__(
        self,
        count: int,
        *,
        now: float,
        ramp: float = 0.0,
        new_share: float = 0.0,
        returned_rate: float = math.inf,
        chance: random.Random | None = None,
    ) -> None:
        self.count, self._start, self._new_share, self._rate = count, now, new_share, returned_rate
        self._ramp = ramp if chance is None else ramp * chance.uniform(1 - JITTER, 1.0)
        self._burst = max(1.0, returned_rate * BURST_SECONDS)
        self._tokens, self._filled = self._burst, now
        self._claims = 0
        self._first = 1

    def open(self, now: float) -> int:
        """Return how many slots are open.

        A tenth is open at first, and all are after `ramp` seconds at the latest.
        """
        if now >= self._start + self._ramp:
            return self.count
        part = FIRST_PART + (1 - FIRST_PART) * (now - self._start) / self._ramp
        return min(self.count, max(self._first, _floor(self.count * part)))

    def allow(self, now: float, held: int, returned_held: int) -> Allowance:
        """Return what may be claimed, given what is held."""
        self._fill(now)
        slots = self.open(now)
        limit = max(0, slots - held)
        returned = min(limit, self._tokens)
        turn = False
        if slots * self._new_share >= 1:
            kept = min(slots - 1, -_floor(-slots * self._new_share))
            returned = min(returned, slots - kept - returned_held)
        else:
            # There are too few slots to keep one free, so new work gets its share of the claims
            # instead.
            turn = _floor((self._claims + 1) * self._new_share) > _floor(
                self._claims * self._new_share
            )
        return Allowance(limit, max(0, _floor(returned)), turn)

    def took(self, returned: int, *, died: bool = False) -> None:
        """Note a claim: how many returned runs it brought, and whether a worker of one had died."""
        self._claims += 1
        self._tokens -= returned
        if died:
            self._first = FIRST_SLOTS

    def more_in(self, now: float) -> float | None:
        """Return the seconds until time alone allows more claims. None if time changes nothing."""
        self._fill(now)
        waits = []
        if (slots := self.open(now)) < self.count:
            part = ((slots + 1) / self.count - FIRST_PART) / (1 - FIRST_PART)
            waits.append(self._start + self._ramp * part - now)
        if self._tokens < 1:
            waits.append((1 - self._tokens) / self._rate)
        return max(PORTION_SECONDS, min(waits)) if waits else None

    def _fill(self, now: float) -> None:
        if now > self._filled:
            self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
            self._filled = now


def _floor(number: float) -> int:
    """Round down, but do not lose a slot to a rounding error."""
    return math.floor(number + 1e-9)
