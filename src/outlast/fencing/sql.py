"""Check fences in SQL databases, in the transaction that writes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outlast.errors import StaleFence
from outlast.fencing.claim import claim_of

SQL_TABLE = """\
CREATE TABLE IF NOT EXISTS outlast_fences (
    resource TEXT PRIMARY KEY,
    fence BIGINT NOT NULL
)"""
"""The table that `guard_sql` needs, for your migrations.

Create it in the database and schema that it guards.
"""

_SQL_GUARD = """\
INSERT INTO outlast_fences (resource, fence) VALUES ({resource}, {fence})
ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence
WHERE outlast_fences.fence <= excluded.fence"""

_SQL_NEWEST = "SELECT fence FROM outlast_fences WHERE resource = {resource}"

ParamStyle = Literal["qmark", "format", "pyformat", "named", "numeric", "numeric_dollar"]
"""The names of PEP 249, and asyncpg's `$1`."""

_PLACES: dict[str, tuple[str, str]] = {
    "qmark": ("?", "?"),
    "format": ("%s", "%s"),
    "pyformat": ("%(resource)s", "%(fence)s"),
    "named": (":resource", ":fence"),
    "numeric": (":1", ":2"),
    "numeric_dollar": ("$1", "$2"),
}


@dataclass(frozen=True)
class SQLGuard:
    """The guard as a statement, for drivers without a DB-API cursor (SQLAlchemy, asyncpg).

    Execute it, then pass its row count to `check`.
    """

    sql: str
    params: dict[str, str | int] | tuple[str, int]
    """By name for `pyformat` and `named`, else in order."""
    resource: str
    fence: int

    def check(self, rowcount: int) -> None:
        """Raise StaleFence if no row was written.

        Raise ValueError if the driver does not know the count.
        """
        if rowcount == 0:
            raise StaleFence(self.resource, self.fence)
        if rowcount != 1:
            raise ValueError(
                f"the driver reported a row count of {rowcount!r} for the guard, which must be 0 "
                "or 1. Execute sql_guard(...) yourself and pass its row count to check()."
            )


def sql_guard(
    resource: str | None = None, *, fence: int | None = None, paramstyle: ParamStyle = "named"
) -> SQLGuard:
    """Return the statement of `guard_sql`.

    Execute it in the transaction of the write that it guards.

    SQLAlchemy:

        guard.check(connection.execute(text(guard.sql), guard.params).rowcount)

    asyncpg, with "numeric_dollar":

        status = await connection.execute(guard.sql, *guard.params)
        guard.check(int(status.split()[-1]))
    """
    resource, fence = claim_of(resource, fence)
    if paramstyle not in _PLACES:
        raise ValueError(f"paramstyle {paramstyle!r} is not one of {', '.join(_PLACES)}.")
    places = _PLACES[paramstyle]
    sql = _SQL_GUARD.format(resource=places[0], fence=places[1])
    if paramstyle in {"pyformat", "named"}:
        return SQLGuard(sql, {"resource": resource, "fence": fence}, resource, fence)
    return SQLGuard(sql, (resource, fence), resource, fence)


def guard_sql(
    connection: Any,
    resource: str | None = None,
    *,
    fence: int | None = None,
    paramstyle: ParamStyle | None = None,
) -> None:
    """Raise StaleFence if a younger claim has written to the resource.

    Call it before your own writes, in their transaction, and let the exception roll the transaction
    back. It takes a DB-API connection or cursor (sqlite3, psycopg, psycopg2, …) and writes one row
    of `outlast_fences` (`SQL_TABLE`). Raise ValueError outside a transaction (autocommit), where
    the guard would protect nothing.

    The lock on that row holds until you commit or roll back, so keep the transaction short. Writers
    of one resource wait for each other, and no write slips in between the guard and your commit. On
    SQLite the lock is the database's write lock.

    It works on PostgreSQL, SQLite from 3.24 on, and databases that support their ON CONFLICT; not
    on MySQL. `paramstyle` defaults to the driver module's own. Under REPEATABLE READ and above,
    PostgreSQL may report a serialization failure instead: retry the transaction.
    """
    style = paramstyle or _paramstyle(connection)
    guard = sql_guard(resource, fence=fence, paramstyle=style)
    cursor = connection if hasattr(connection, "rowcount") else connection.cursor()
    if inspect.isawaitable(cursor) or inspect.iscoroutinefunction(cursor.execute):
        raise TypeError(
            "guard_sql() was given an async connection: use `await guard_sql_async(...)`."
        )
    try:
        cursor.execute(guard.sql, guard.params)
        _check_transaction(connection, cursor)
        if cursor.rowcount == 0:
            cursor.execute(*_newest(guard, style))
            raise StaleFence(guard.resource, guard.fence, _first(cursor.fetchone()))
        guard.check(cursor.rowcount)
    finally:
        if cursor is not connection:
            cursor.close()


async def guard_sql_async(
    connection: Any,
    resource: str | None = None,
    *,
    fence: int | None = None,
    paramstyle: ParamStyle | None = None,
) -> None:
    """Call `guard_sql` on an async connection or cursor (psycopg's AsyncConnection, aiosqlite).

    The connection must have the shape of the DB-API.
    """
    style = paramstyle or _paramstyle(connection)
    guard = sql_guard(resource, fence=fence, paramstyle=style)
    cursor = connection if hasattr(connection, "rowcount") else connection.cursor()
    if inspect.isawaitable(cursor):
        cursor = await cursor
    try:
        await cursor.execute(guard.sql, guard.params)
        _check_transaction(connection, cursor)
        if cursor.rowcount == 0:
            await cursor.execute(*_newest(guard, style))
            raise StaleFence(guard.resource, guard.fence, _first(await cursor.fetchone()))
        guard.check(cursor.rowcount)
    finally:
        if cursor is not connection:
            await cursor.close()


def create_table(connection: Any) -> None:
    """Execute `SQL_TABLE`. Concurrent calls may collide, so prefer a migration."""
    cursor = connection.cursor()
    try:
        cursor.execute(SQL_TABLE)
    finally:
        cursor.close()


async def create_table_async(connection: Any) -> None:
    """Execute `SQL_TABLE` on an async connection, including asyncpg's."""
    await connection.execute(SQL_TABLE)


def _newest(guard: SQLGuard, paramstyle: ParamStyle) -> tuple[str, Any]:
    """Return the statement and parameters that read the stored fence, for the error."""
    sql = _SQL_NEWEST.format(resource=_PLACES[paramstyle][0])
    return sql, {"resource": guard.resource} if isinstance(guard.params, dict) else (
        guard.resource,
    )


def _first(row: Any) -> int | None:
    if row is None:
        return None
    return int(next(iter(row.values())) if isinstance(row, Mapping) else row[0])


def _paramstyle(connection: Any) -> ParamStyle:
    """Return the driver module's paramstyle, searching from the connection's classes outwards.

    Raise TypeError if no module has one.
    """
    for kind in type(connection).__mro__:
        name = kind.__module__
        while name:
            style = getattr(sys.modules.get(name), "paramstyle", None)
            if style in _PLACES:
                return style  # type: ignore[no-any-return]
            name = name.rpartition(".")[0]
    raise TypeError(
        f"the driver of {type(connection).__qualname__} does not declare its paramstyle. Pass "
        "paramstyle=, or execute sql_guard(...) yourself."
    )


def _check_transaction(connection: Any, cursor: Any) -> None:
    """Raise ValueError outside a transaction, where the driver can tell.

    sqlite3 has `in_transaction`, psycopg has `transaction_status` (0 is idle).
    """
    if connection is cursor:
        connection = getattr(cursor, "connection", None)
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if getattr(connection, "in_transaction", None) is False or status == 0:
        raise ValueError(
            "a guard outside a transaction protects nothing, because its lock is released at "
            "once. Begin a transaction (BEGIN, or autocommit off) around the guard and the write."
        )
