"""One connection to the server, made when it is first needed and made anew when it was lost. Used by one thread at a time."""

from __future__ import annotations

import math
import os
import select
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import errors, pq

from outlast.errors import StoreBroken
from outlast.store.postgres.address import Address
from outlast.store.postgres.statements import PLANS

SERVER_VERSION_MIN = 140_000
CALL, RECORD = b"outlast", b"outlast_record"
"""The names of what is prepared."""
STATEMENT_SECONDS_MAX = 60
"""No call of ours takes that long unless it waits for somebody who will not come."""

_SESSION = (
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;"
    f"SET statement_timeout = '{STATEMENT_SECONDS_MAX}s';"
    "SET idle_in_transaction_session_timeout = '60s';"
    "SET extra_float_digits = 1"
)
"""The last: a time that is read is the one that was written, to the last bit. A run's clock goes by it."""


def readable(files: list[int], seconds: float) -> set[int]:
    """Which of them can be read from, as soon as one can. (`select` knows no number above 1,023.)"""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {file for file, _ in poll.poll(math.ceil(seconds * 1000))}


class Late(psycopg.OperationalError):
    """The server has not answered in time."""


_prepared: WeakSet[psycopg.Connection[Any]] = WeakSet()
"""Sessions in which the statements are prepared."""

_inherited: list[Any] = []
"""Connections of the process that forked this one: never closed here, which would end them there."""


class Connection:
    def __init__(self, address: Address, statements: Mapping[bytes, str] | None = None) -> None:
        """`statements`: what is called here, by name. They have $1, $2… in them."""
        self.address = address
        self._statements = statements or {}
        self.pooler = bool(address.pooler)
        self._db: psycopg.Connection[Any] | None = None

    @property
    def is_open(self) -> bool:
        return self._db is not None

    @property
    def is_usable(self) -> bool:
        """Whether the session is good for another statement."""
        return self._db is not None and self._db.pgconn.status == pq.ConnStatus.OK

    @property
    def is_prepared(self) -> bool:
        """Whether a call can be made with a bound on its time."""
        return not self.pooler and self.is_usable and self._db in _prepared

    def db(self) -> psycopg.Connection[Any]:
        """Connected. psycopg.Error if that is not possible now."""
        if self._db is not None and self._db.pgconn.status != pq.ConnStatus.OK:
            self.drop()
        if self._db is None:
            self._db = self._connect()
        return self._db

    def _connect(self) -> psycopg.Connection[Any]:
        db = psycopg.connect(autocommit=True, **self.address.options)  # type: ignore[arg-type]
        try:
            if self.address.pooler is None:
                pid = db.execute("SELECT pg_backend_pid()").fetchone()
                self.pooler = pid is not None and pid[0] != db.info.backend_pid
            if self.pooler:
                db.prepare_threshold = None
            else:
                db.execute(_SESSION)
            if db.info.server_version < SERVER_VERSION_MIN:
                raise StoreBroken(
                    f"{self.address.place}: PostgreSQL {db.info.server_version // 10_000} is too old: 14 or later is needed."
                )
            if db.info.parameter_status("server_encoding") not in ("UTF8", None):
                raise StoreBroken(
                    f"{self.address.place}: its encoding is not UTF8. Create a database with ENCODING 'UTF8'."
                )
        except BaseException:
            db.close()
            raise
        return db

    def execute(self, statement: str, values: Any = None) -> list[Any]:
        """One statement by itself: its rows. psycopg.Error."""
        cursor = self.db().execute(statement, values)
        return cursor.fetchall() if cursor.description is not None else []

    def call(self, values: list[Any], seconds: float | None = None) -> bytes:
        """The statement CALL, which gives one value, straight through libpq: a cursor takes longer than the server does. psycopg.Error.

        With `seconds`, for one that is prepared, it waits no longer than that for the server: Late, and the connection is gone.
        """
        db = self.db()
        if seconds is not None:
            return self._value(self._soon(db, CALL, values, seconds))
        if not self.pooler:
            try:
                self._prepare(db)
                return self._value(db.pgconn.exec_prepared(CALL, values))
            except (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement):
                self.pooler = True  # it is another session than a moment ago, whatever the address says
                db.prepare_threshold = None
        return self._value(db.pgconn.exec_params(self._statements[CALL].encode(), values))

    def record(self, values: list[Any], seconds: float | None = None) -> bool:
        """The statement RECORD, where it `is_prepared`: whether it has written its row. psycopg.Error, and Late as for `call`."""
        db = self.db()
        if seconds is not None:
            result = self._soon(db, RECORD, values, seconds)
        else:
            result = db.pgconn.exec_prepared(RECORD, values)
        self._value(result)
        return result.command_tuples == 1

    def _prepare(self, db: psycopg.Connection[Any]) -> None:
        if db not in _prepared:
            for setting in PLANS:
                self._value(db.pgconn.exec_(f"SET {setting}".encode()))
            for name, statement in self._statements.items():
                self._value(db.pgconn.prepare(name, statement.encode()))
            _prepared.add(db)

    def _soon(
        self, db: psycopg.Connection[Any], name: bytes, values: list[Any], seconds: float
    ) -> pq.abc.PGresult:
        pgconn = db.pgconn
        pgconn.send_query_prepared(name, values)
        if not readable([pgconn.socket], seconds):
            self.drop()
            raise Late(f"no answer within {seconds} seconds")
        result = pgconn.get_result()
        if result is None:
            raise psycopg.OperationalError("no result")
        while pgconn.get_result() is not None:
            continue
        return result

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
        """After fork: the session is the parent's. Only our copy of its socket is closed."""
        db, self._db = self._db, None
        if db is not None:
            _inherited.append(db)
            with suppress(psycopg.Error):  # one that is lost has no socket
                os.close(db.fileno())
