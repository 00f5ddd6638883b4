"""Read a database that this process may not write: another user's, or one on a read-only mount.

Nothing is created beside it. SQLite needs `-wal` and `-shm` to read what other processes are
writing. Where they are missing, no process has the database open, and it is read as it stands.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from outlast.errors import StoreUnavailable
from outlast.store.sqlite.connection import connect
from outlast.store.sqlite.files import companions

T = TypeVar("T")
TRIES = 20


def may_write(path: Path) -> bool:
    """Return whether this process may write to the database and create the files beside it."""
    beside = path.with_name(path.name + ".d")
    places = {path, path.parent, Path(os.path.realpath(path)).parent}
    effective = os.access in os.supports_effective_ids
    return all(
        os.access(place, os.W_OK, effective_ids=effective)
        for place in (places | {beside} if beside.exists() else places)
    )


class ReadOnlyDatabase:
    """Open the database again for each query: its files change when workers start and end."""

    def __init__(self, path: Path, place: str) -> None:
        self._path = path
        self._place = place
        self._log, self._index = companions(path)

    def query(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Return what the action reads. Repeat it if the files change in a read without locks."""
        for _ in range(TRIES):
            before = self._stamps()
            is_locked, options = self._options()
            try:
                with closing(self._connect(options)) as db:
                    found = action(db)
            except sqlite3.Error:
                if is_locked or self._stamps() == before:
                    raise
                continue
            if is_locked or self._stamps() == before:
                return found
        raise StoreUnavailable(f"{self._place}: it kept changing while it was read. Try again.")

    def _options(self) -> tuple[bool, str]:
        """Return whether SQLite's locks protect the read, and the options to open it with."""
        log = Path(self._log)
        if not log.exists() or not log.stat().st_size:
            return False, "immutable=1"
        if Path(self._index).exists():
            return True, "mode=ro"
        # This is a copy without -shm. SQLite keeps the index in memory.
        return False, "mode=ro&vfs=unix-none"

    def _connect(self, options: str) -> sqlite3.Connection:
        db = connect(self._path, options)
        try:
            if "vfs" in options:
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
        except BaseException:
            db.close()
            raise
        return db

    def _stamps(self) -> list[tuple[int, int] | None]:
        """Return times and sizes, which change when a process writes to the database or its log."""
        stamps: list[tuple[int, int] | None] = []
        for path in (self._path, self._log):
            try:
                found = Path(path).stat()
            except FileNotFoundError:
                stamps.append(None)
            else:
                stamps.append((found.st_mtime_ns, found.st_size))
        return stamps
