"""Helpers for the tests of the SQLite file and its processes."""

import sqlite3
from contextlib import closing

from outlast.store.commands import Submit


def submit(id: str) -> Submit:
    return Submit(id, "flow", "[]", id, "seed")


def look(path, statement="SELECT id FROM runs ORDER BY pk"):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement).fetchall()
