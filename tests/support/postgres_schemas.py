"""Schemas for tests of the Postgres store, and sessions that are kept from one test to the next."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import psycopg
import pytest

from outlast.store.commands import RegisterWorker
from outlast.store.postgres import connection
from outlast.store.postgres.address import parse
from outlast.store.postgres.store import PostgresStore

TABLES = (
    "runs", "entries", "executions", "messages", "progress", "workers", "presence", "queues", "lines", "drains", "recoveries", "durations", "sessions",
    "session_fields", "session_items", "worker_deaths", "key_changes",
)  # fmt: skip

EMPTY = "; ".join(
    [
        "BEGIN",
        *(f"DELETE FROM {table}" for table in TABLES),
        "UPDATE pulse SET beat = 0, awake = 0",
        "COMMIT",
    ]
)
_emptying: dict[str, psycopg.Connection] = {}
"""By address, the sessions that empty schemas."""


@contextmanager
def schema_of_this_process(url: str, name: str = "conformance") -> Iterator[str]:
    """The address of a schema that is made, and removed at the end."""
    schema = f"{name}_{os.getpid()}"
    address = f"{url}{'&' if '?' in url else '?'}schema={schema}"
    store = PostgresStore.at(address)
    store.open()
    store.close()
    try:
        yield address
    finally:
        _stop_emptying(address)
        with connected(address) as db:
            db.execute(f"DROP SCHEMA {schema} CASCADE")


@contextmanager
def with_a_worker(address: str, worker: str, slots: int) -> Iterator[PostgresStore]:
    """The store of a schema, with a worker that lives and takes items of the queue `q`."""
    store = PostgresStore.at(address)
    store.open()
    store.acquire_liveness(worker)
    store.commit([RegisterWorker(worker, "host", 1, 600.0, ("q",), ("",), slots)])
    yield store
    store.close()


@contextmanager
def connected(address: str) -> Iterator[psycopg.Connection]:
    """A session beside the store's, in its schema."""
    known = parse(address)
    with psycopg.connect(autocommit=True, **known.options) as db:
        db.execute(f"SET search_path = {known.schema}")
        yield db


def counted(*connections: connection.Connection) -> None:
    """From now on the statistics of the server have what these sessions did. Before PostgreSQL 15 they come when they come."""
    for each in connections:
        if each.db().info.server_version < 150_000:
            pytest.skip("the statistics of this server cannot be waited for")
        each.execute("SELECT pg_stat_force_next_flush()")
        each.execute("SELECT 1")


def blocked_by(db: psycopg.Connection) -> int:
    """Return how many sessions wait for a lock that this one holds."""
    waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    return db.execute(waiting).fetchone()[0]


def emptied(address: str) -> None:
    """Empty every table, as after a migration. The sequences only grow.

    The session is kept for the next call: to connect takes longer than to empty the tables.
    """
    db = _emptying.get(address)
    if db is None or db.closed or db.broken:
        known = parse(address)
        db = _emptying[address] = psycopg.connect(autocommit=True, **known.options)
        db.execute(f"SET search_path = {known.schema}")
    db.execute(EMPTY)


def _stop_emptying(address: str) -> None:
    db = _emptying.pop(address, None)
    if db is not None:
        type(db).close(db)  # `Sessions` may have made it, and would keep it open


class Sessions:
    """Keep what a store closes for the next one.

    Most of a short test is what a new session costs: a process of the server, and its plans.
    """

    def __init__(self) -> None:
        self._idle: list[psycopg.Connection] = []
        self._connect = connection._Session.connect

    @contextmanager
    def kept(self) -> Iterator["Sessions"]:
        """Give the stores of this process kept sessions, and close them at the end."""
        with mock.patch.object(connection._Session, "connect", self.connect):
            try:
                yield self
            finally:
                for db in self._idle:
                    type(db).close(db)

    def connect(self, **options) -> psycopg.Connection:
        """Return a kept session, or a new one."""
        while self._idle:
            db = self._idle.pop()
            if not db.closed:
                return db
        db = self._connect(**options)
        db.close = lambda: self._close(db)
        return db

    def _close(self, db: psycopg.Connection) -> None:
        """Keep a session without its locks and listeners, or close one that is of no use."""
        if db in self._idle:
            return
        try:
            if not db.closed:
                db.execute("SELECT pg_advisory_unlock_all()")
                db.execute("UNLISTEN *")
                db._notify_handlers.clear()
                self._idle.append(db)
                return
        except psycopg.Error:
            pass
        type(db).close(db)
