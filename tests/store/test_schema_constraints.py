"""The schema keeps out values that no release writes, so no reader has to expect them."""

import sqlite3
from contextlib import closing

import pytest

from outlast.store.commands import (
    Drain,
    Record,
    RegisterWorker,
    Submit,
    UpdateSession,
)
from outlast.store.sqlite.store import SQLiteStore

WRONG_TYPES = {"INTEGER": ("text", b"\xff", 0.5), "REAL": ("text", b"\xff"), "TEXT": (b"\xff",)}
TABLES = ("runs", "entries", "queues", "workers", "drains", "sessions", "counters", "pulse")
WRONG_VALUES = [
    ("runs", "status", "unknown"),
    ("runs", "ready", 3),
    ("workers", "lease", -1.0),
    ("workers", "lease", float("inf")),
    ("workers", "renewed", float("-inf")),
    ("workers", "lease_until", 1e300),
    ("workers", "draining", 2),
    ("workers", "queues", "{}"),
    ("workers", "workflows", ""),
    ("drains", "swept", 2),
    ("sessions", "tokens", "[]"),
]


@pytest.fixture
def db(tmp_path):
    """Yield a connection of another program to a store with a row in each table."""
    store = SQLiteStore(tmp_path / "outlast.db")
    store.open()
    (_, submitted, *_) = store.commit(
        [
            RegisterWorker("w", "host", 1, 30.0, ("default",), ("flow",), 4),
            Submit("run", "flow", "{}", "t", "00" * 16, worker="w"),
            UpdateSession("session", "t", {"field": "1"}),
        ]
    )
    row = submitted.row
    store.commit(
        [
            Record(row.pk, 1, row.fence, "step", "k", 1.0),
            Drain("w", "a reason", (row.fence,)),
        ]
    )
    with closing(sqlite3.connect(store.path, isolation_level=None)) as db:
        yield db
    store.close()


@pytest.mark.parametrize("table", TABLES)
def test_a_column_takes_only_values_of_its_type(db, table):
    columns = [(name, kind) for _, name, kind, *_ in db.execute(f"PRAGMA table_info({table})")]
    before = db.execute(f"SELECT * FROM {table}").fetchall()
    assert before
    for name, kind in columns:
        for value in WRONG_TYPES[kind]:
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(f"UPDATE {table} SET {name} = ?", (value,))
    assert db.execute(f"SELECT * FROM {table}").fetchall() == before


@pytest.mark.parametrize(("table", "column", "value"), WRONG_VALUES)
def test_a_value_that_no_release_writes_is_refused(db, table, column, value):
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        db.execute(f"UPDATE {table} SET {column} = ?", (value,))
