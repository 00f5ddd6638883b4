"""Estimate whether a step will end in the time left, from its earlier durations."""

from __future__ import annotations

from collections.abc import Sequence

ENOUGH = 5
"""Minimum number of durations for an estimate."""


def completion_probability(durations: Sequence[float], elapsed: float, left: float) -> float:
    """Return the probability that a step ends within `left` seconds, after `elapsed` seconds.

    It is the share of earlier executions that did, among those that took longer than `elapsed`.
    Return 0.5 if there are too few durations, or if none is longer.
    """
    longer = [seconds for seconds in durations if seconds > elapsed]
    if len(durations) < ENOUGH or not longer:
        return 0.5
    return sum(seconds <= elapsed + left for seconds in longer) / len(longer)
