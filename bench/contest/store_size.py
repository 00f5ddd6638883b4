"""Measure how much space a store takes, and what frees it."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any, Protocol

WORDS: dict[str, dict[str, str]] = {
    "sqlite": {
        "bytes": "the file, with its log written back into it",
        "tidy": "nothing happens: free pages are reused",
        "shrink": "VACUUM",
    },
    "postgres": {
        "bytes": "`pg_database_size` after a checkpoint",
        "tidy": "VACUUM, as autovacuum does it. Empty pages at the end of a file return to the system, and all others are reused",
        "shrink": "VACUUM FULL, which locks out all workers",
    },
    "redis": {
        "bytes": "the data in memory (`used_memory_dataset`). The append-only file keeps everything written until it is rewritten",
        "tidy": "BGREWRITEAOF, which Redis starts itself when the file has doubled",
        "shrink": "nothing to do: memory is free at once",
    },
}
"""What `bytes`, `tidy` and `shrink` mean for each store, for the report."""


class StoreSize(Protocol):
    def bytes(self) -> int: ...

    def written(self) -> int:
        """To its log, since the last `bytes`."""
        ...

    def tidy(self) -> None:
        """What the store does by itself, sooner or later, now."""

    def shrink(self) -> None:
        """What an operator can do."""


def size_of(address: str) -> StoreSize:
    if address.startswith("sqlite:"):
        return _SQLite(Path(address.removeprefix("sqlite:///")))
    return _Postgres(address) if address.startswith("postgres") else _Redis(address)


class _SQLite:
    def __init__(self, path: Path) -> None:
        self._path = path

    def bytes(self) -> int:
        self._say("PRAGMA wal_checkpoint(TRUNCATE)")
        return self._path.stat().st_size

    def written(self) -> int:
        return 0

    def tidy(self) -> None:
        pass

    def shrink(self) -> None:
        self._say("VACUUM")

    def _say(self, statement: str) -> None:
        db = sqlite3.connect(self._path, isolation_level=None, timeout=30.0)
        db.execute(statement).fetchall()
        db.close()


class _Postgres:
    def __init__(self, address: str) -> None:
        import psycopg

        self._db = psycopg.connect(address, autocommit=True)
        self._lsn = "0/0"

    def bytes(self) -> int:
        self._db.execute("CHECKPOINT")
        size = self._one("SELECT pg_database_size(current_database())")
        self._lsn, self._before = self._one("SELECT pg_current_wal_lsn()::text"), self._lsn
        return int(size)

    def written(self) -> int:
        return int(self._one(f"SELECT pg_wal_lsn_diff('{self._lsn}', '{self._before}')"))

    def tidy(self) -> None:
        self._db.execute("VACUUM")

    def shrink(self) -> None:
        self._db.execute("VACUUM FULL")

    def _one(self, statement: str) -> Any:
        row = self._db.execute(statement).fetchone()
        assert row is not None
        return row[0]


class _Redis:
    def __init__(self, address: str) -> None:
        import redis

        self._client = redis.Redis.from_url(address)
        self._aof = 0

    def bytes(self) -> int:
        while self._client.info("memory")["lazyfree_pending_objects"]:
            time.sleep(0.01)
        size = int(self._client.info("memory")["used_memory_dataset"])
        self._aof, self._before = (
            int(self._client.info("persistence")["aof_current_size"]),
            self._aof,
        )
        return size

    def written(self) -> int:
        return self._aof - self._before

    def tidy(self) -> None:
        self._client.bgrewriteaof()
        while self._client.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.05)

    def shrink(self) -> None:
        pass
