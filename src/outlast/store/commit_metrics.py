"""Count and time the commits of the writer.

The writer has one object per committing thread, so there are no locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.store.commands import FENCE, Refused
from outlast.telemetry import names
from outlast.telemetry.meters import Counter, Histogram


class Commits:
    """The commits of one thread."""

    __slots__ = ("commands", "failures", "seconds", "stale")

    def __init__(self) -> None:
        self.commands = Histogram(names.COMMIT_VERBS)
        self.seconds = Histogram(names.COMMIT_SECONDS_TAKEN)
        self.failures = Counter(names.COMMIT_FAILURES)
        self.stale = 0

    def add(self, outcomes: Sequence[Any], seconds: float) -> None:
        self.commands.add((), len(outcomes))
        self.seconds.add((), seconds)
        # Refusals are rare, and this check is fast.
        if Refused in map(type, outcomes):
            self.stale += sum(
                type(outcome) is Refused and outcome.why == FENCE for outcome in outcomes
            )

    def failed(self, kind: str) -> None:
        self.failures.add((kind,))
