"""The fence in other people's systems: a guard for SQL, one for Redis, headers for HTTP.

    from outlast import fencing

    @step
    def book(amount: int) -> None:
        with psycopg.connect(...) as db:                # one transaction
            fencing.guard_sql(db)                       # StaleFence if a younger claim has written
            db.execute("UPDATE account SET ...")

Each keeps, per resource, the highest fence that has written, and refuses a lower one in the same transaction, script or lock
that writes. The resource is the run's id unless one is given. All fences of a store come from one counter, so runs may share
a resource (an account that several runs write to): an older claim is then refused once a younger one has written. Fences of
different stores cannot be compared: give each store resources of its own.

A refused writer has `StaleFence`. The same claim may write as often as it likes.
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
"""The highest fence: what JSON, Lua and a BIGINT all carry exactly."""

RUN_HEADER = "Outlast-Run"
"""The header that says which run calls."""

FENCE_HEADER = "Outlast-Fence"
"""The header that says under which fence it does: `read_headers` reads both, `FenceGate` refuses an older one."""

SQL_TABLE = """\
CREATE TABLE IF NOT EXISTS outlast_fences (
    resource TEXT PRIMARY KEY,
    fence BIGINT NOT NULL
)"""
"""The table that `guard_sql` needs, for your migrations: in the database, and the schema, of what it guards."""

_SQL_GUARD = """\
INSERT INTO outlast_fences (resource, fence) VALUES ({resource}, {fence})
ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE outlast_fences.fence <= excluded.fence"""

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
# The fence is stored first: a command that fails leaves a fence without a write, never a write without its fence.

ParamStyle = Literal["qmark", "format", "pyformat", "named", "numeric", "numeric_dollar"]
"""PEP 249's names, and asyncpg's `$1`."""

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
    """The guard as a statement, for what has no DB-API cursor (SQLAlchemy, asyncpg): execute it, then `check` its row count."""

    sql: str
    params: dict[str, str | int] | tuple[str, int]
    """By name for `pyformat` and `named`, else in order."""
    resource: str
    fence: int

    def check(self, rowcount: int) -> None:
        """StaleFence if no row was written. ValueError if the driver does not know how many were."""
        if rowcount == 0:
            raise StaleFence(self.resource, self.fence)
        if rowcount != 1:
            raise ValueError(f"the guard writes one row or none, and the driver said {rowcount!r}.")


def sql_guard(
    resource: str | None = None, *, fence: int | None = None, paramstyle: ParamStyle = "named"
) -> SQLGuard:
    """The statement of `guard_sql`, to be executed in the transaction of the write that it guards.

    SQLAlchemy: `guard.check(connection.execute(text(guard.sql), guard.params).rowcount)`.
    asyncpg, with "numeric_dollar": `guard.check(int((await connection.execute(guard.sql, *guard.params)).split()[-1]))`.
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
    """Refuse to go on, with StaleFence, if a younger claim has written to the resource. Call it before your own writes, in
    their transaction, and let the exception roll that back.

    It takes a DB-API connection or cursor (sqlite3, psycopg, psycopg2, …) and writes one row of `outlast_fences` (`SQL_TABLE`).
    The lock on that row holds until you commit or roll back: writers of one resource go one after the other, and none can
    slip between the guard and your commit. (On SQLite the lock is the database's write lock.) So keep the transaction
    short. ValueError outside a transaction (autocommit), where the guard would guard nothing.

    For PostgreSQL, SQLite from 3.24 on, and what speaks their ON CONFLICT; not MySQL. `paramstyle` is the driver module's own
    unless given. Under REPEATABLE READ and above, PostgreSQL may report a serialization failure instead: try again.
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
    """`guard_sql` for async connections and cursors of the DB-API's shape (psycopg's AsyncConnection, aiosqlite)."""
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
    """Execute `SQL_TABLE`. Processes that do so at the same moment may collide: a migration is the better place."""
    cursor = connection.cursor()
    try:
        cursor.execute(SQL_TABLE)
    finally:
        cursor.close()


async def create_table_async(connection: Any) -> None:
    """`create_table` for async connections, asyncpg's among them."""
    await connection.execute(SQL_TABLE)


def _newest(guard: SQLGuard, paramstyle: ParamStyle) -> tuple[str, Any]:
    """The statement, and its parameters, that asks which fence is there: for the message."""
    sql = _SQL_NEWEST.format(resource=_PLACES[paramstyle][0])
    return sql, {"resource": guard.resource} if isinstance(guard.params, dict) else (
        guard.resource,
    )


def _first(row: Any) -> int | None:
    if row is None:
        return None
    return int(next(iter(row.values())) if isinstance(row, Mapping) else row[0])


def _paramstyle(connection: Any) -> ParamStyle:
    """What the driver's module says, found from the connection's classes outwards."""
    for kind in type(connection).__mro__:
        name = kind.__module__
        while name:
            style = getattr(sys.modules.get(name), "paramstyle", None)
            if style in _PLACES:
                return style  # type: ignore[no-any-return]
            name = name.rpartition(".")[0]
    raise TypeError(
        f"the driver of {type(connection).__qualname__} does not say how it writes parameters: give paramstyle=, or execute "
        "sql_guard(...) yourself."
    )


def _check_transaction(connection: Any, cursor: Any) -> None:
    """Where the driver can tell: sqlite3's `in_transaction`, psycopg's `transaction_status` (0 is idle)."""
    if connection is cursor:
        connection = getattr(cursor, "connection", None)
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if getattr(connection, "in_transaction", None) is False or status == 0:
        raise ValueError(
            "a guard outside a transaction guards nothing, for its lock is gone already: begin one (BEGIN, or autocommit off) "
            "around the guard and the write."
        )


# Redis


class RedisClient(Protocol):
    """redis-py's clients, sync and asyncio, single and cluster; nothing of redis-py is imported."""

    def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any: ...


def guard_redis(
    client: RedisClient,
    *command: str | bytes | float,
    resource: str | None = None,
    fence: int | None = None,
    keys: Sequence[str | bytes] | None = None,
    ttl_seconds: int | None = None,
) -> Any:
    """Execute one command, in one script with the comparison of the fence; StaleFence, and nothing written, if a younger claim
    has written to the resource.

        fencing.guard_redis(client, "HSET", "{order-7}:state", "paid", 1)

    Returns the reply as a script gets it (b"OK", not True). The fence is kept at `outlast:fence:{RESOURCE}`, for ever or until
    `ttl_seconds` after the last write: choose it longer than any stale writer can live. `keys` are the keys of the command,
    its first argument unless given.

    Redis Cluster: a script's keys must share a slot, and the fence's slot is that of its hash tag, the resource. So name your keys
    with it, `{order-7}:state` for the resource `order-7`; a resource for this has no braces of its own.
    What Redis loses (see its `appendfsync`, and a failover to a replica that lags), it loses of fences as well.
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
    """`guard_redis` for redis.asyncio: the same promise, the same errors."""
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
    """The headers that tell a server who writes: `{"Outlast-Run": "order-7", "Outlast-Fence": "42"}`.

    What is not plain in a header is percent-encoded (UTF-8); `read_headers` gives it back.
    """
    run, fence = _claim(run, fence)
    return {RUN_HEADER: quote(run, safe="/:@+="), FENCE_HEADER: str(fence)}


def read_headers(headers: Headers) -> tuple[str, int]:
    """The run's id and the fence of a request. ValueError if they are missing, doubled or malformed: answer 400."""
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
    """The server's side, for a server of threads that keeps what it guards in this process or on this host.

        with gate.passing("/orders/7", fence):      # StaleFence: answer 409
            write()

    `newest` holds the highest fence of each resource. It should last as long as what it guards: a dict forgets with the
    process, and a stale writer may pass after that. The gate lets one write pass at a time. A server whose data outlives its process,
    or one of coroutines, uses `guard_sql` in the transaction that writes, with the fence it has read.
    """

    def __init__(self, newest: MutableMapping[str, int] | None = None) -> None:
        self.newest: MutableMapping[str, int] = {} if newest is None else newest
        self._lock = Lock()

    @contextmanager
    def passing(self, resource: str, fence: int) -> Iterator[None]:
        """Hold the gate while the block writes. StaleFence, before it is entered, if a younger claim has passed."""
        _claim(resource, fence)
        with self._lock:
            newest = self.newest.get(resource)
            if newest is not None and newest > fence:
                raise StaleFence(resource, fence, newest)
            self.newest[resource] = fence
            yield


def _claim(resource: str | None, fence: int | None) -> tuple[str, int]:
    """The resource and the fence: as given, else the current run's."""
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
        raise ValueError(f"a resource is a text that is not empty, not {resource!r}.")
    if isinstance(fence, bool) or not isinstance(fence, int) or not 0 < fence <= FENCE_MAX:
        raise ValueError(f"a fence is a whole number from 1 to {FENCE_MAX}, not {fence!r}.")
    return resource, fence
