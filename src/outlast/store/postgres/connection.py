"""Connect to the server, reconnect when the connection is lost, and bound every wait for an answer.

One thread at a time uses a connection.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import errors, pq

from outlast.errors import StoreBroken
from outlast.store.deadline import CALL_SECONDS, time_left
from outlast.store.postgres.address import Address
from outlast.store.postgres.statements import PLANS

SERVER_VERSION_MIN = 140_000
CALL, RECORD = b"outlast", b"outlast_record"
"""The names of the prepared statements."""
SERVER_SHARE = 2
"""The server's bound on a statement, in multiples of the client's: the server may have lost the
client, and some calls may take longer.
"""

_SESSION = (
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;"
    "SET statement_timeout = '{milliseconds}ms';"
    "SET idle_in_transaction_session_timeout = '60s';"
    "SET search_path = pg_catalog, pg_temp;"
    "SET extra_float_digits = 1"
)
"""The search path keeps functions and operators of other schemas from being taken for the server's.
The float digits make a time read back equal to the one written, to the last bit: a run's clock
depends on it.
"""


def readable(files: list[int], seconds: float) -> set[int]:
    """Wait until one of these descriptors is readable, and return those that are.

    `poll` has no limit on descriptor numbers; `select` stops at 1,023.
    """
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {file for file, _ in poll.poll(math.ceil(seconds * 1000))}


class Late(psycopg.OperationalError):
    """The server did not answer in time. The connection is closed."""


class _Session(psycopg.Connection[Any]):
    """A psycopg connection that closes itself when the server stays silent for too long."""

    seconds_max = CALL_SECONDS

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Consume psycopg's generator as psycopg does, but raise Late instead of waiting on."""
        try:
            return super().wait(_bounded(gen, time_left(self.seconds_max)), *args, **options)
        except Late:
            # A late answer could no longer be matched to its statement.
            self.pgconn.finish()
            raise


def _bounded(gen: Any, seconds: float) -> Generator[Any, Any, Any]:
    """Forward psycopg's generator, and raise Late after `seconds` of silence from the server."""
    deadline, ready = time.monotonic() + seconds, None
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as ended:
            return ended.value
        ready = yield wanted
        if ready:
            deadline = time.monotonic() + seconds
        # psycopg wakes the generator ten times a second.
        elif time.monotonic() >= deadline:
            gen.close()
            raise _late(seconds)


def _late(seconds: float) -> Late:
    return Late(f"the server did not answer within {seconds:.3g} s")


_prepared: WeakSet[psycopg.Connection[Any]] = WeakSet()
"""Sessions in which the statements are prepared."""

_inherited: list[Any] = []
"""Connections of the process that forked this one. Closing them here would end them there."""


class Connection:
    def __init__(
        self,
        address: Address,
        statements: Mapping[bytes, str] | None = None,
        seconds_max: float = CALL_SECONDS,
    ) -> None:
        """Prepare to connect. The connection opens when it is first used.

        `statements` maps names to statements with $1, $2… in them. A call takes `seconds_max` at
        most.
        """
        self.address = address
        self._statements = statements or {}
        self._seconds_max = seconds_max
        self.pooler = bool(address.pooler)
        self._db: _Session | None = None

    @property
    def is_open(self) -> bool:
        return self._db is not None

    @property
    def is_usable(self) -> bool:
        """Return whether the session can take another statement."""
        return self._db is not None and self._db.pgconn.status == pq.ConnStatus.OK

    @property
    def is_prepared(self) -> bool:
        """Return whether the statements are prepared, so that a call's time can be bounded."""
        return not self.pooler and self.is_usable and self._db in _prepared

    def db(self) -> _Session:
        """Return the session, and connect if there is none. Raise psycopg.Error if that fails."""
        if self._db is not None and self._db.pgconn.status != pq.ConnStatus.OK:
            self.drop()
        if self._db is None:
            self._db = self._connect()
        return self._db

    def _connect(self) -> _Session:
        options: dict[str, Any] = self.address.options | {
            "connect_timeout": self._connect_timeout()
        }
        db = _Session.connect(autocommit=True, **options)
        db.seconds_max = self._seconds_max
        try:
            if self.address.pooler is None:
                pid = db.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
                self.pooler = pid is not None and pid[0] != db.info.backend_pid
            if self.pooler:
                db.prepare_threshold = None
            else:
                milliseconds = max(1, int(self._seconds_max * SERVER_SHARE * 1000))
                db.execute(_SESSION.format(milliseconds=milliseconds).encode())
            if db.info.server_version < SERVER_VERSION_MIN:
                raise StoreBroken(
                    f"{self.address.place}: PostgreSQL {db.info.server_version // 10_000} is "
                    "too old: 14 or later is needed."
                )
            if db.info.parameter_status("server_encoding") not in ("UTF8", None):
                raise StoreBroken(
                    f"{self.address.place}: its encoding is not UTF8. Create a database with "
                    "ENCODING 'UTF8'."
                )
        except BaseException:
            db.close()
            raise
        return db

    def execute(self, statement: str, values: Any = None) -> list[Any]:
        """Execute one statement and return its rows. Raise psycopg.Error if it fails."""
        cursor = self.db().execute(statement, values)
        return cursor.fetchall() if cursor.description is not None else []

    def _connect_timeout(self) -> int:
        """Return the address's own connect_timeout, but no more than a call may take.

        It does not bound the lookup of a host name. Only the resolver's own settings do (`options
        timeout:` and `attempts:` in resolv.conf, 10 s for each name server by default).
        """
        given = self.address.options.get("connect_timeout") or os.environ.get(
            "PGCONNECT_TIMEOUT", ""
        )
        seconds_max = math.ceil(time_left(self._seconds_max))
        seconds = int(given) if given.isascii() and given.isdigit() else 0
        return min(seconds or seconds_max, seconds_max)

    def call(self, values: list[Any], seconds: float | None = None) -> bytes:
        """Call the statement CALL and return its one value.

        The call goes straight through libpq: a cursor takes longer than the server does. `seconds`
        overrides the connection's bound. Raise psycopg.Error, or Late with the connection closed.
        """
        db = self.db()
        if not self.pooler:
            try:
                self._prepare(db)
                return self._value(self._prepared(db, CALL, values, seconds))
            except (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement):
                # The session changed since the last statement, whatever the address says.
                self.pooler = True
                db.prepare_threshold = None
        db.pgconn.send_query_params(self._statements[CALL].encode(), values)
        return self._value(self._result(db, seconds))

    def record(self, values: list[Any], seconds: float | None = None) -> bool:
        """Call the statement RECORD and return whether it wrote its row.

        The caller checks `is_prepared` first. Raise as `call` does.
        """
        result = self._prepared(self.db(), RECORD, values, seconds)
        self._value(result)
        return result.command_tuples == 1

    def _prepare(self, db: _Session) -> None:
        if db not in _prepared:
            for setting in PLANS:
                db.pgconn.send_query(f"SET {setting}".encode())
                self._value(self._result(db))
            for name, statement in self._statements.items():
                db.pgconn.send_prepare(name, statement.encode())
                self._value(self._result(db))
            _prepared.add(db)

    def _prepared(
        self, db: _Session, name: bytes, values: list[Any], seconds: float | None = None
    ) -> pq.abc.PGresult:
        db.pgconn.send_query_prepared(name, values)
        return self._result(db, seconds)

    def _result(self, db: _Session, seconds: float | None = None) -> pq.abc.PGresult:
        """Return the result of the statement just sent.

        Raise Late, with the connection closed, after `seconds` of silence from the server.
        """
        pgconn, seconds = db.pgconn, time_left(self._seconds_max if seconds is None else seconds)
        while pgconn.flush():
            self._await(pgconn, select.POLLIN | select.POLLOUT, seconds)
            pgconn.consume_input()
        last: pq.abc.PGresult | None = None
        while True:
            while pgconn.is_busy():
                self._await(pgconn, select.POLLIN, seconds)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            last = last or result
        if last is None:
            raise psycopg.OperationalError("no result")
        return last

    def _await(self, pgconn: pq.abc.PGconn, events: int, seconds: float) -> None:
        poll = select.poll()
        poll.register(pgconn.socket, events)
        if not poll.poll(math.ceil(seconds * 1000)):
            self.drop()
            raise _late(seconds)

    def _value(self, result: pq.abc.PGresult) -> bytes:
        if result.status == pq.ExecStatus.COMMAND_OK:
            return b""
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise errors.error_from_result(result)
        return result.get_value(0, 0) or b""

    def drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def forget_in_child(self) -> None:
        """Close a forked child's copy of the socket. The session stays the parent's."""
        db, self._db = self._db, None
        if db is not None:
            _inherited.append(db)
            # A lost connection has no socket.
            with suppress(psycopg.Error):
                os.close(db.fileno())
