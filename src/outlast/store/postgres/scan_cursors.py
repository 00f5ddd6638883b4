"""Remember where scans for claimable runs begin, while full scans are slow.

See the function `ready`.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from outlast.store.postgres.migrate import WALK_MAX

SHARE = 20
"""The interval between full scans, in multiples of their duration. They cost a twentieth of the
time.
"""
SECONDS_MAX = 5.0
"""The longest interval between full scans. A run before a remembered position is found this late.
"""
DUE_MARGIN = 10.0
"""Seconds. Runs that came due longer ago were made ready, unless their transaction took that long.
"""


class ScanCursorCache:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._due: float | None = None
        self._lines: dict[tuple[str, str, int], list[Any]] = {}

    def now(self) -> list[Any] | None:
        """Return where scans begin now. None means at the beginning."""
        with self._lock:
            if time.monotonic() >= self._until:
                return None
            return [self._due, list(self._lines.values())]

    def left(self) -> float:
        """Return the seconds until the next full scan."""
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
        """Record a scan: its duration, the entries it walked over, and the first run of each line.

        A line is a queue with a workflow, separately for interrupted runs and others. `firsts` has
        only lines with a run. `floored` says that the scan began at remembered positions.
        """
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
