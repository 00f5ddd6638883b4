"""Where a test's store is: a file, a schema of a Postgres server, a prefix of a Redis server. Each test has a place of its own."""

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4
from zlib import crc32

import psycopg
import pytest
import redis
from psycopg import sql

from outlast.store.protocol import whole_journal
from outlast.store.redis.store import RedisStore
from outlast.store.rows import DrainRow, Entry, RunQuery, RunRow, WorkerRow

SHARED = ("sqlite", "postgres", "redis")
"""Stores that several processes may have open."""
HERE = ("memory", "sqlite")
"""Where one process is enough: the same commands on the same tables, in memory or in a file."""
TURNS = {
    "place": SHARED,
    "world": ("memory", "sqlite", "memory", "memory"),
    "address": HERE,
    "places": ("postgres", "redis", "file"),
    "new_address": SHARED[1:],
}
"""The stores of these fixtures. Each test has one of them. A file costs twice the CPU time of memory, and
few tests of a world could tell the two apart: three of four are in memory."""
TABLES = ("runs", "entries", "workers", "drains", "recoveries")
Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[Any]]]
"""Columns and rows."""


@pytest.fixture(params=SHARED)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a store that processes share, empty, gone after the test."""
    with a_place(request, request.param, tmp_path) as address:
        yield address


@contextmanager
def a_place(request: pytest.FixtureRequest, kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/outlast.db"
    elif kind == "file":
        yield f"file://{folder}/outlast"
    elif kind == "postgres":
        with postgres_place(request.getfixturevalue("postgres_server").url) as address:
            yield address
    else:
        with redis_place(request.getfixturevalue("redis_server").url) as address:
            yield address


@contextmanager
def postgres_place(server: str) -> Iterator[str]:
    schema = f"t_{uuid4().hex}"
    yield f"{server}{'&' if '?' in server else '?'}schema={schema}"
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


@contextmanager
def redis_place(server: str) -> Iterator[str]:
    prefix = f"t-{uuid4().hex}"
    yield f"{server}{'&' if '?' in server else '?'}prefix={prefix}"
    with redis.Redis.from_url(server) as client:
        for key in client.scan_iter(f"*{prefix}*", count=10_000):
            client.unlink(key)


def peek(address: str, tables: Collection[str] = TABLES) -> sqlite3.Connection:
    """The store as it is, for SQL that only looks: nobody is woken, and no sign of life is given.

    Of SQLite's file it is the file itself, read only; of the others a copy in memory, with the same names of tables and columns.
    To copy only the `tables` that the SQL names is much cheaper.
    """
    if address.startswith("sqlite:"):
        file = address.removeprefix("sqlite:///").partition("?")[0]
        return sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)
    copy = sqlite3.connect(":memory:", isolation_level=None)
    read = _postgres_tables if address.startswith("postgres") else _redis_tables
    for name, (columns, rows) in read(address, tables).items():
        copy.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        copy.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    return copy


def query(address: str, statement: str, *values: Any) -> list[Any]:
    """Return the rows of a query. It wakes no process and gives no sign of life."""
    with closing(peek(address, [name for name in TABLES if name in statement])) as connection:
        return connection.execute(statement, values).fetchall()


def _postgres_tables(address: str, names: Collection[str]) -> dict[str, Table]:
    server, _, schema = address.rpartition("schema=")
    tables: dict[str, Table] = {}
    with psycopg.connect(server[:-1]) as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # one moment
        for name in (
            names if db.execute("SELECT to_regclass(%s)", [f"{schema}.runs"]).fetchone()[0] else ()
        ):
            found = db.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, name)))
            tables[name] = [column.name for column in found.description], found.fetchall()
    return tables


def _redis_tables(address: str, names: Collection[str]) -> dict[str, Table]:
    store = RedisStore.at(address)
    store.open()
    tables: dict[str, Table] = {}
    with closing(store):
        if "runs" in names or "entries" in names:
            runs = store.runs(RunQuery(limit=1_000_000))
            tables["runs"] = (RunRow._fields, runs)
        if "entries" in names:
            entries = [(run.pk, *entry) for run in runs for entry in whole_journal(store, run.pk)]
            tables["entries"] = (("run", *Entry._fields), entries)
        if "workers" in names:
            tables["workers"] = (WorkerRow._fields, store.workers())
        if "drains" in names or "recoveries" in names:
            drains = store.drains(10_000)
            found = [(drain.worker, seconds) for drain in drains for seconds in drain.recoveries]
            tables["drains"] = (DrainRow._fields[:-1], [drain[:-1] for drain in drains])
            tables["recoveries"] = (("drain", "seconds"), found)
    return tables


def leave_for_make_stores(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what `make test` does not run.

    A test that supports several stores runs on one of them, chosen by its name. Tests marked `extended`
    do not run.
    """
    if os.environ.get("OUTLAST_TEST_STORES") == "all" or any("::" in name for name in config.args):
        return
    left: list[pytest.Item] = []
    elsewhere: list[pytest.Item] = []
    for item in items:
        (elsewhere if _is_elsewhere(item) else left).append(item)
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = left


def _is_elsewhere(item: pytest.Item) -> bool:
    """Return whether only `make stores` and `make soak` run this test."""
    if item.get_closest_marker("extended"):
        return True
    given = getattr(item, "callspec", None)
    for fixture, kinds in TURNS.items():
        kind = given and given.params.get(fixture)
        name = item.nodeid.replace(str(kind), "")
        if kind in kinds and kinds[crc32(name.encode()) % len(kinds)] != kind:
            return True
    return False
