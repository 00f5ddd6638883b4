"""The yardstick: the store alone, one row a durable commit, from Python's own client. `--variant 20` is Postgres over 20 connections."""

from __future__ import annotations

import argparse
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from common import (
    POSTGRES_SETTINGS,
    SQLITE_SETTINGS,
    Laps,
    Meter,
    drive,
)

# A copy of Outlast's table of entries, not a reference to it: a yardstick does not change with what it measures.
SQLITE_TABLE = """
CREATE TABLE entries (
    run TEXT NOT NULL, seq INTEGER NOT NULL, fence INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
    at REAL NOT NULL, args TEXT, value TEXT, PRIMARY KEY (run, seq)
) WITHOUT ROWID
"""
SQLITE_INSERT = "INSERT INTO entries VALUES (?, ?, 1, 'step', ?, ?, ?, ?)"
POSTGRES_TABLE = """
CREATE TABLE entries (
    run text NOT NULL, seq bigint NOT NULL, fence bigint NOT NULL, kind text NOT NULL, key text NOT NULL,
    at double precision NOT NULL, args text, value text, PRIMARY KEY (run, seq)
)
"""
POSTGRES_INSERT = "INSERT INTO entries VALUES (%s, %s, 1, 'step', %s, %s, %s, %s)"
COUNT = "SELECT count(*) FROM entries WHERE run LIKE "

meter = Meter()
Commit = Callable[[str, int], object]
"""Makes one step of a run durable."""


def steps(given: argparse.Namespace) -> dict[str, Any]:
    meter.server = given.server
    return _sqlite(given) if given.store.startswith("sqlite:") else _postgres(given)


def _sqlite(given: argparse.Namespace) -> dict[str, Any]:
    db = sqlite3.connect(given.store.removeprefix("sqlite:///"), isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(SQLITE_TABLE)

    def commit(run: str, number: int) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute(SQLITE_INSERT, _row(run, number))
        db.execute("COMMIT")

    laps = _measure(given, [commit])
    found = laps.found
    found["recorded"] = db.execute(f"{COUNT} ?", (f"{laps.last}-%",)).fetchone()[0]
    found["settings"] = {
        name: str(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in SQLITE_SETTINGS
    }
    db.close()
    return {
        **found,
        "config": "one connection, BEGIN IMMEDIATE, one INSERT, COMMIT; WAL, synchronous=FULL",
    }


def _postgres(given: argparse.Namespace) -> dict[str, Any]:
    import psycopg

    connections = min(int(given.variant or 1), given.runs)
    with ExitStack() as stack:
        dbs = [
            stack.enter_context(psycopg.connect(given.store, autocommit=True, prepare_threshold=0))
            for _ in range(connections)
        ]
        dbs[0].execute(POSTGRES_TABLE)

        def commit_by(db: psycopg.Connection[Any]) -> Commit:
            return lambda run, number: db.execute(POSTGRES_INSERT, _row(run, number))

        laps = _measure(given, [commit_by(db) for db in dbs])
        found = laps.found
        found["recorded"] = dbs[0].execute(f"{COUNT} %s", (f"{laps.last}-%",)).fetchone()[0]
        found["settings"] = {
            name: dbs[0].execute(f"SHOW {name}").fetchone()[0] for name in POSTGRES_SETTINGS
        }
    return {
        **found,
        "config": f"psycopg, {connections} connection{'s, a thread each' * (connections > 1)}; one INSERT a commit, prepared",
    }


def _measure(given: argparse.Namespace, commits: list[Commit]) -> Laps:
    laps = Laps(given, meter)
    for name, runs, steps in laps:
        _execute(commits, name, runs, steps)
    return laps


def _execute(commits: list[Commit], name: str, runs: int, steps: int) -> None:
    """The runs are shared out among the connections; each takes a step of every run it has in turn."""
    if len(commits) == 1:
        _share(commits[0], [f"{name}-{number}" for number in range(runs)], steps)
        return
    shares = [
        [f"{name}-{number}" for number in range(first, runs, len(commits))]
        for first in range(len(commits))
    ]
    threads = [
        threading.Thread(target=_share, args=(commit, share, steps))
        for commit, share in zip(commits, shares, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _share(commit: Commit, runs: list[str], steps: int) -> None:
    for number in range(steps):
        for run in runs:
            meter.step(run)
            commit(run, number)


def _row(run: str, number: int) -> tuple[object, ...]:
    return run, number, f"noop#{number}", time.time(), f'{{"x":{number}}}', str(number)


if __name__ == "__main__":
    drive({"steps": steps})
