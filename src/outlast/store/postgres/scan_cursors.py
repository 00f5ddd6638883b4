"""What a store remembers of its scans for something to claim while they are slow: see the function `ready`."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from outlast.store.postgres.migrate import WALK_MAX

SHARE = 20
"""A scan of everything is made again after so many times what it took: it costs a twentieth of the time."""
SECONDS_MAX = 5.0
"""And after so long at the latest: that is how late a run may be seen that belongs before the place."""
DUE_MARGIN = 10.0
"""What came due longer ago was made ready, unless its transaction took that long."""


class ScanCursorCache:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._due: float | None = None
        self._lines: dict[tuple[str, str, int], list[Any]] = {}

    def now(self) -> list[Any] | None:
        """Where scans begin now; None: at the beginning."""
        with self._lock:
            if time.monotonic() >= self._until:
                return None
            return [self._due, list(self._lines.values())]

    def left(self) -> float:
        """Seconds until a scan begins at the beginning again."""
        with self._lock:
            return max(self._until - time.monotonic(), 0.0)

    def text(self) -> str | None:
        scan_cursors = self.now()
        return None if scan_cursors is None else json.dumps(scan_cursors)

    def learn(
        self,
        seconds: float,
        walked: int,
        firsts: list[list[Any]] | None,
        now: float,
        *,
        floored: bool,
    ) -> None:
        """After a scan: how long it took, how many entries it walked over, and the first run of each line that had any."""
        with self._lock:
            if not floored:
                slow = walked > WALK_MAX
                self._until = time.monotonic() + min(SHARE * seconds, SECONDS_MAX) if slow else 0.0
                self._due = now - DUE_MARGIN
                if not slow:
                    self._lines.clear()
            if time.monotonic() < self._until:
                for first in firsts or ():
                    self._lines[first[0], first[1], first[2]] = first[:7]
