"""Track whether the store works, as the writer's attempts see it."""

from __future__ import annotations

from outlast.errors import StoreError
from outlast.store.protocol import CommitUnknown

PAUSE_MIN = 0.01
PAUSE_MAX = 1.0
"""Seconds between two attempts while the store fails: the first pause, and the longest."""
WARN_PAUSE = 0.5
"""Each failed attempt is logged once the pause exceeds this."""
BLOCKED_MAX = 3
"""If more single commands than this are blocked in a row, the whole store counts as blocked."""


class StoreHealth:
    """The outcome of the last attempts to write."""

    __slots__ = ("_blocked_in_a_row", "failure", "outcome_unknown", "pause")

    def __init__(self) -> None:
        self.failure: StoreError | None = None
        """Why the last attempt failed. None while the store works."""
        self.outcome_unknown = False
        """Whether a commit failed that may have been written. The store must recover first."""
        self.pause = PAUSE_MIN
        """How many seconds to wait before the next attempt."""
        self._blocked_in_a_row = 0

    def answered(self) -> None:
        """Note that the store works."""
        self.failure = None
        self.outcome_unknown = False
        self.pause = PAUSE_MIN
        self._blocked_in_a_row = 0

    def failed(self, error: StoreError) -> None:
        self.failure = error
        self.outcome_unknown = self.outcome_unknown or isinstance(error, CommitUnknown)

    def blocked(self) -> None:
        """Note that the store answered, but a lock kept it from writing."""
        self.outcome_unknown = False

    def all_is_blocked(self) -> bool:
        """Count one more blocked batch. Return whether the store as a whole seems blocked."""
        self._blocked_in_a_row += 1
        return self._blocked_in_a_row > BLOCKED_MAX

    @property
    def is_lasting(self) -> bool:
        """Return whether the store has failed for so long that each attempt is worth a warning."""
        return self.pause > WARN_PAUSE

    def lengthen_pause(self) -> None:
        self.pause = min(self.pause * 2, PAUSE_MAX)
