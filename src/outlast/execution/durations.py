"""Remember how long steps took, for the forecasts of a drain."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

KNOWN_MAX = 200
"""Maximum number of durations kept per step."""
FRESH_MAX = 2_000
"""Maximum number of samples kept for the store between two writes. More are dropped."""


class Durations:
    """Durations of steps, from here and, after `learn`, from other workers.

    Only single attempts that succeeded count.
    """

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
        """Add durations from the store, as older than those measured here."""
        for pair, seconds in recorded.items():
            here = self._known.get(pair, ())
            self._known[pair] = deque((*seconds, *here), maxlen=KNOWN_MAX)

    def fresh(self) -> tuple[tuple[str, str, float], ...]:
        """Return the samples that are not in the store yet, and forget that they are new."""
        fresh, self._fresh = self._fresh, []
        return tuple(fresh)
