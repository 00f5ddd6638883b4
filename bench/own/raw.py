"""The yardstick: single-row commits of SQLite alone, as durable as Outlast's own."""

from __future__ import annotations

import sqlite3
import time
from itertools import count
from pathlib import Path

from bench.own.log import Log

COMMITS = 1_000
"""As many as the lone run records: less than the log takes until it stops growing."""

# A copy of Outlast's table of entries, not a reference to it: a yardstick does not change with what it measures.
TABLE = """
CREATE TABLE entries (
    run INTEGER NOT NULL, seq INTEGER NOT NULL, fence INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
    at REAL NOT NULL, args TEXT, value TEXT, error TEXT, seconds REAL, attempt INTEGER, asked INTEGER,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID
"""
INSERT = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def raw(folder: Path) -> dict[str, float]:
    path = folder / "raw.db"
    db = sqlite3.connect(path, isolation_level=None)
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    assert mode == "wal", f"{folder}: its file system does not allow SQLite's WAL"
    db.execute("PRAGMA synchronous = FULL")
    db.execute(TABLE)
    log, seqs = Log(path), count(1)

    def commits_per_second(commits: int) -> float:
        started = time.perf_counter()
        for _ in range(commits):
            seq = next(seqs)
            row = (
                1,
                seq,
                1,
                "step",
                f"noop#{seq}",
                time.time(),
                f'{{"x":{seq}}}',
                str(seq),
                None,
                0.00001,
                1,
                0,
            )
            db.execute("BEGIN IMMEDIATE")
            db.execute(INSERT, row)
            db.execute("COMMIT")
        return commits / (time.perf_counter() - started)

    growing = commits_per_second(COMMITS)
    while log.grew():
        commits_per_second(100)
    reused = commits_per_second(COMMITS)
    db.close()
    return {"commits_per_second": growing, "reused_commits_per_second": reused}
