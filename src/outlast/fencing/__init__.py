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

from outlast.fencing.claim import FENCE_MAX
from outlast.fencing.http import FENCE_HEADER, RUN_HEADER, FenceGate, fence_headers, read_headers
from outlast.fencing.redis import guard_redis, guard_redis_async
from outlast.fencing.sql import (
    SQL_TABLE,
    SQLGuard,
    create_table,
    create_table_async,
    guard_sql,
    guard_sql_async,
    sql_guard,
)

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
