"""SQLite's write-ahead log, which has two states, one about twice as fast as the other.

In a new process it grows, and each durable commit must also make its new length durable. At about 1,000 pages it is
written into the database and from then on overwritten from its beginning. Numbers of different states cannot be
compared, so each is measured apart.
"""

from __future__ import annotations

from pathlib import Path


class Log:
    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-wal")
        self._size = 0

    def grew(self) -> bool:
        """Whether it has since the last look."""
        size, self._size = self._size, self._path.stat().st_size
        return self._size > size
