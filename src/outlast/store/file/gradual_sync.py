"""Sync journals a few at a time, while the log grows."""

from __future__ import annotations

import math
from collections.abc import Iterable


class GradualSync:
    """The journals to sync before the old log can be removed.

    Each commit syncs a share of them, so that no commit waits for all. All are synced when the new
    log is half full.
    """

    def __init__(self, files: Iterable[str], log_bytes_max: int) -> None:
        self.left = list(files)
        self._files_per_byte = 2 * len(self.left) / log_bytes_max
        self._due = 0.0
        """How many files are due, with a fraction."""

    def take(self, size: int) -> list[str]:
        """Return the files to sync now that the log has grown by `size` bytes."""
        self._due += size * self._files_per_byte
        count = min(math.ceil(self._due), len(self.left))
        self._due -= count
        taken, self.left = self.left[:count], self.left[count:]
        return taken
