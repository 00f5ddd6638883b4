"""Whether a step will end in the time left, judged from how long it took before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

KNOWN_MAX = 200
"""Durations that are remembered of one step."""
ENOUGH = 5
"""Fewer say nothing."""
FRESH_MAX = 2_000
"""Samples kept for the store between two looks; what is more is dropped: they are samples."""


def completion_probability(durations: Sequence[float], elapsed: float, left: float) -> float:
    """How likely a step that has taken `elapsed` seconds ends within `left` more: of those that took longer than it has, the
    share that did. A half where nothing is known."""
    longer = [seconds for seconds in durations if seconds > elapsed]
    if len(durations) < ENOUGH or not longer:
        return 0.5
    return sum(seconds <= elapsed + left for seconds in longer) / len(longer)


class Durations:
    """How long steps took, here and (after `learn`) elsewhere. Single attempts that succeeded."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], deque[float]] = {}
        self._fresh: list[tuple[str, str, float]] = []

    def add(self, workflow: str, step: str, seconds: float) -> None:
        known = self._known.get((workflow, step))
        if known is None:
            known = self._known[workflow, step] = deque(maxlen=KNOWN_MAX)
        known.append(seconds)
        if len(self._fresh) < FRESH_MAX:
            self._fresh.append((workflow, step, seconds))

    def of(self, workflow: str, step: str) -> Sequence[float]:
        return self._known.get((workflow, step), ())

    def learn(self, recorded: Mapping[tuple[str, str], Sequence[float]]) -> None:
        """What the store remembers comes before what was seen here since."""
        for pair, seconds in recorded.items():
            here = self._known.get(pair, ())
            self._known[pair] = deque((*seconds, *here), maxlen=KNOWN_MAX)

    def fresh(self) -> tuple[tuple[str, str, float], ...]:
        """What the store has not been told yet."""
        fresh, self._fresh = self._fresh, []
        return tuple(fresh)
