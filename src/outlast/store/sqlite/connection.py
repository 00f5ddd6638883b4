"""Connect to a database file, and wait while another program holds its lock."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outlast.errors import StoreUnavailable
from outlast.store.deadline import time_left

BUSY_SECONDS = 2.0
"""How many seconds one attempt waits for a program that holds the lock. The writer retries for
longer.
"""


def connect(path: Path, options: str, seconds: float | None = None) -> sqlite3.Connection:
    """Connect to an existing file with URI options such as `mode=ro`."""
    db = sqlite3.connect(
        f"{path.as_uri()}?{options}",
        uri=True,
        timeout=time_left(BUSY_SECONDS if seconds is None else seconds),
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        # A file may come from anywhere.
        db.execute("PRAGMA trusted_schema = OFF")
    except BaseException:
        db.close()
        raise
    return db


def connect_durably(path: Path, synchronous: str, *, read_only: bool = False) -> sqlite3.Connection:
    """Connect with the settings that decide when a commit is durable."""
    db = connect(path, "mode=ro" if read_only else "mode=rw")
    try:
        db.execute(f"PRAGMA synchronous = {'FULL' if synchronous == 'full' else 'NORMAL'}")
        db.execute("PRAGMA journal_size_limit = 67108864")
    except BaseException:
        db.close()
        raise
    return db


def switch_to_wal(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreUnavailable if the file system does not allow SQLite's write-ahead log."""
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreUnavailable(
            f"{path}: its file system does not allow SQLite's WAL (journal mode is {mode!r}). "
            "Use a local disk, not a network file system."
        )


def retry_busy(action: Callable[[], Any]) -> None:
    """Repeat an action while the database is busy, for BUSY_SECONDS at most.

    SQLite's own time-out is off: it does not cover the switch to WAL, and a commit that must not
    wait cannot use it.
    """
    deadline = 0.0
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            deadline = deadline or time.monotonic() + time_left(BUSY_SECONDS)
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.002)
        else:
            return


inherited: list[Any] = []
"""Connections of the process that forked this one. Closing them would roll back its transaction."""
lost_inodes: set[int] = set()
"""Files whose locks this forked process cannot know."""
