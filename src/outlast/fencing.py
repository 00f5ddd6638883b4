"""Check fences in other systems: guards for SQL and Redis, headers for HTTP.

    from outlast import fencing

    @step
    def book(amount: int) -> None:
        with psycopg.connect(...) as db:                # one transaction
            fencing.guard_sql(db)                       # StaleFence if a younger claim has written
            db.execute("UPDATE account SET ...")

Each guard stores the highest fence that has written to a resource. It refuses a lower fence in the
same transaction, script or lock that writes. The resource is the run's id unless one is given.

All fences of a store come from one counter, so runs may share a resource, such as an account that
several runs write to. An older claim is then refused once a younger one has written. Fences of
different stores cannot be compared: give each store its own resources.

A refused writer gets `StaleFence`. The same claim may write any number of times.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, Protocol
from urllib.parse import quote, unquote

from outlast.api.context import current
from outlast.errors import NotInRun, StaleFence

__all__ = [
    "FENCE_HEADER",
    "FENCE_MAX",
    "RUN_HEADER",
    "SQL_TABLE",
    "FenceGate",
    "SQLGuard",
    "create_table",
    "create_table_async",
    "fence_headers",
    "guard_redis",
    "guard_redis_async",
    "guard_sql",
    "guard_sql_async",
    "read_headers",
    "sql_guard",
]

FENCE_MAX = 2**53 - 1
"""The highest fence: JSON, Lua and BIGINT all represent it exactly."""

RUN_HEADER = "Outlast-Run"
"""The header with the id of the calling run."""

FENCE_HEADER = "Outlast-Fence"
"""The header with the fence of the call.

`read_headers` reads both, `FenceGate` refuses an older fence.
"""

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

_LUA_GUARD = """\
local newest = redis.call('GET', KEYS[1])
if newest and tonumber(newest) > tonumber(ARGV[1]) then
  return {0, newest}
end
if ARGV[2] == '' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
end
return {1, redis.call(unpack(ARGV, 3))}
"""
# The script stores the fence first. A command that fails leaves a fence without a write, never a
# write without its fence.

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


# SQL


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
            raise ValueError(f"the guard writes one row or none, and the driver said {rowcount!r}.")


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
    resource, fence = _claim(resource, fence)
    if paramstyle not in _PLACES:
        raise ValueError(f"paramstyle {paramstyle!r} is none of {', '.join(_PLACES)}.")
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
            "a guard outside a transaction guards nothing: its lock is released at once. Begin a "
            "transaction (BEGIN, or autocommit off) around the guard and the write."
        )


# Redis


class RedisClient(Protocol):
    """A client of redis-py: sync or asyncio, single or cluster. Nothing of redis-py is imported."""

    def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any: ...


def guard_redis(
    client: RedisClient,
    *command: str | bytes | float,
    resource: str | None = None,
    fence: int | None = None,
    keys: Sequence[str | bytes] | None = None,
    ttl_seconds: int | None = None,
) -> Any:
    """Execute one Redis command in one script with the fence check and return its reply.

        fencing.guard_redis(client, "HSET", "{order-7}:state", "paid", 1)

    Raise StaleFence, and write nothing, if a younger claim has written to the resource. The reply
    is what a script gets (b"OK", not True).

    The fence is kept at `outlast:fence:{RESOURCE}`, forever or until `ttl_seconds` after the last
    write. Choose a time longer than any stale writer can live. `keys` are the keys of the command,
    by default its first argument.

    In Redis Cluster, a script's keys must share a slot, and the fence's slot is that of its hash
    tag, the resource. So put the resource into your keys: `{order-7}:state` for the resource
    `order-7`. Such a resource must not contain braces. When Redis loses data (see `appendfsync`,
    and a failover to a lagging replica), it loses fences as well.
    """
    claim = _claim(resource, fence)
    reply = client.eval(*_script(command, claim, keys, ttl_seconds))
    if inspect.isawaitable(reply):
        if inspect.iscoroutine(reply):
            reply.close()
        raise TypeError(
            "guard_redis() was given an asyncio client: use `await guard_redis_async(...)`."
        )
    return _reply(reply, claim)


async def guard_redis_async(
    client: RedisClient,
    *command: str | bytes | float,
    resource: str | None = None,
    fence: int | None = None,
    keys: Sequence[str | bytes] | None = None,
    ttl_seconds: int | None = None,
) -> Any:
    """Execute `guard_redis` on a redis.asyncio client, with the same guarantees and errors."""
    claim = _claim(resource, fence)
    reply: Awaitable[Any] = client.eval(*_script(command, claim, keys, ttl_seconds))
    return _reply(await reply, claim)


def _script(
    command: tuple[str | bytes | float, ...],
    claim: tuple[str, int],
    keys: Sequence[str | bytes] | None,
    ttl_seconds: int | None,
) -> tuple[Any, ...]:
    if len(command) < 2:
        raise TypeError('give a command and its key: guard_redis(client, "SET", key, value).')
    if ttl_seconds is not None and ttl_seconds < 1:
        raise ValueError(f"ttl_seconds must be 1 or more, not {ttl_seconds!r}.")
    all_keys = [f"outlast:fence:{{{claim[0]}}}", *(command[1:2] if keys is None else keys)]
    ttl = "" if ttl_seconds is None else int(ttl_seconds)
    return (_LUA_GUARD, len(all_keys), *all_keys, claim[1], ttl, *command)


def _reply(reply: Any, claim: tuple[str, int]) -> Any:
    if not isinstance(reply, list):
        raise TypeError("the guard needs its answer at once: give it a client, not a pipeline.")
    written, value = reply
    if not written:
        raise StaleFence(*claim, int(value))
    return value


# HTTP


class Headers(Protocol):
    """Any mapping of header names to values: http.server's, Starlette's, httpx's, a dict."""

    def items(self) -> Iterable[tuple[str, str]]: ...


def fence_headers(run: str | None = None, *, fence: int | None = None) -> dict[str, str]:
    """Return the headers that identify the writer to a server.

    They look like `{"Outlast-Run": "order-7", "Outlast-Fence": "42"}`. Characters that are not
    plain in a header are percent-encoded (UTF-8). `read_headers` decodes them.
    """
    run, fence = _claim(run, fence)
    return {RUN_HEADER: quote(run, safe="/:@+="), FENCE_HEADER: str(fence)}


def read_headers(headers: Headers) -> tuple[str, int]:
    """Return the run's id and the fence of a request.

    Raise ValueError if they are missing, doubled or malformed: answer 400.
    """
    found: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower in {RUN_HEADER.lower(), FENCE_HEADER.lower()}:
            if lower in found:
                raise ValueError(f"the header {name} is there twice.")
            found[lower] = value.strip()
    run, fence = found.get(RUN_HEADER.lower(), ""), found.get(FENCE_HEADER.lower(), "")
    if not run:
        raise ValueError(f"the header {RUN_HEADER} is missing.")
    if not (
        fence.isascii() and fence.isdigit() and len(fence) <= 16 and 0 < int(fence) <= FENCE_MAX
    ):
        raise ValueError(f"the header {FENCE_HEADER} is not a fence: {fence[:40]!r}.")
    return unquote(run, errors="strict"), int(fence)


class FenceGate:
    """Check fences on the server's side.

    It is for a threaded server that keeps the guarded data in this process or on this host.

        with gate.passing("/orders/7", fence):      # StaleFence: answer 409
            write()

    `newest` holds the highest fence of each resource. It should last as long as the data that it
    guards: a dict is lost with the process, and a stale writer may pass after that. The gate lets
    one write pass at a time. A server whose data outlives its process, or an async server, uses
    `guard_sql` in the transaction that writes, with the fence from the request.
    """

    def __init__(self, newest: MutableMapping[str, int] | None = None) -> None:
        self.newest: MutableMapping[str, int] = {} if newest is None else newest
        self._lock = Lock()

    @contextmanager
    def passing(self, resource: str, fence: int) -> Iterator[None]:
        """Hold the gate while the block writes.

        Raise StaleFence before the block is entered if a younger claim has passed.
        """
        _claim(resource, fence)
        with self._lock:
            newest = self.newest.get(resource)
            if newest is not None and newest > fence:
                raise StaleFence(resource, fence, newest)
            self.newest[resource] = fence
            yield


def _claim(resource: str | None, fence: int | None) -> tuple[str, int]:
    """Return the resource and the fence: as given, else those of the current run.

    Raise NotInRun outside a run if one is missing, and ValueError if one is invalid.
    """
    if resource is None or fence is None:
        try:
            here = current()
        except NotInRun:
            raise NotInRun(
                "outside a run a fence helper needs both the resource and fence=."
            ) from None
        resource = here.id if resource is None else resource
        fence = here.fence if fence is None else fence
    if not isinstance(resource, str) or not resource:
        raise ValueError(f"a resource must be a non-empty string, not {resource!r}.")
    if isinstance(fence, bool) or not isinstance(fence, int) or not 0 < fence <= FENCE_MAX:
        raise ValueError(f"a fence is a whole number from 1 to {FENCE_MAX}, not {fence!r}.")
    return resource, fence
