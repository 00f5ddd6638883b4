"""Helpers for the tests of faults of the SQLite store."""

import sqlite3
from contextlib import closing

from outlast.store.commands import (
    Submit,
)


def submit(id: str, size: int = 0) -> Submit:
    return Submit(id, "flow", "x" * size, id, "seed")


def check_file(path):
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
