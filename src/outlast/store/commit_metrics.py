"""Count and time the commits of the writer.

The writer has one object per committing thread, so there are no locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.errors import StoreUnavailable
from outlast.store.commands import FENCE, Refused
from outlast.store.protocol import BadValue, CommitUnknown
from outlast.telemetry import names
from outlast.telemetry.meters import Counter, Histogram


class Commits:
    """The commits of one thread."""

    __slots__ = ("commands", "failures", "seconds", "stale")

    def __init__(self) -> None:
        self.commands = Histogram(names.COMMIT_COMMANDS)
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


class CommitMetrics:
    """Count the batches and commands of a writer and, if metered, time its commits."""

    __slots__ = ("batches", "commands", "on_loop", "on_thread")

    def __init__(self, *, metered: bool) -> None:
        self.batches = 0
        self.commands = 0
        self.on_loop = Commits() if metered else None
        """Commits on the event loop itself. None if they are not metered."""
        self.on_thread = Commits() if metered else None
        """Commits on the writer's thread. None if they are not metered."""

    @property
    def by_thread(self) -> tuple[Commits, ...]:
        """Return the commits of each thread; empty if they are not metered."""
        return tuple(one for one in (self.on_loop, self.on_thread) if one is not None)


def count_failure(commits: Commits | None, error: Exception) -> None:
    """Count a failed commit by the kind of its error."""
    if commits is None:
        return
    if isinstance(error, BadValue):
        kind = "bad_value"
    elif isinstance(error, StoreUnavailable):
        kind = "unavailable"
    elif isinstance(error, CommitUnknown):
        kind = "unknown"
    else:
        kind = "fault"
    commits.failed(kind)
