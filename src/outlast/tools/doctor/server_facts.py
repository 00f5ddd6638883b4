"""Ask a Postgres or Redis server what it reports about itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from outlast.errors import OutlastError, StoreUnavailable


def server_facts(scheme: str, address: str) -> dict[str, Any]:
    """Return the server's report on itself, or the error.

    Return nothing for stores without a server.

    A failure here must not hide what the store reports.
    """
    asks = {"postgresql": _postgres, "redis": _redis}.get(scheme)
    if asks is None:
        return {}
    try:
        return {"server": asks(address)}
    except OutlastError as error:
        return {"server_error": str(error)}


def _postgres(address: str) -> Mapping[str, Any]:
    import psycopg

    from outlast.store.postgres.address import parse
    from outlast.store.postgres.connection import Connection
    from outlast.store.postgres.failures import translate

    parsed = parse(address)
    db = Connection(parsed)
    try:
        asked = time.time()
        ((now,),) = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        answered = time.time()
        names = (
            "server_version",
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "max_connections",
            "transaction_read_only",
        )
        values = {name: db.execute("SELECT current_setting(%s)", (name,))[0][0] for name in names}
        ((used,),) = db.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        )
        ((replica,),) = db.execute("SELECT pg_is_in_recovery()")
        rights = db.execute(
            "SELECT has_table_privilege(c.oid, 'INSERT, UPDATE') FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = "
            "'runs'",
            (parsed.schema,),
        )
    except (psycopg.Error, OSError) as error:
        raise translate(error, parsed, sent=False, usable=False) from error
    finally:
        db.drop()
    return {
        **values,
        "used": used,
        "replica": replica,
        "pooler": db.pooler,
        "may_write": rights[0][0] if rights else None,
        "skew": now - (asked + answered) / 2,
        "trip": answered - asked,
    }


def _redis(address: str) -> Mapping[str, Any]:
    from outlast.store.redis.address import parse
    from outlast.store.redis.connection import Lost, RedisConnection
    from outlast.store.redis.server_check import dangers, info, setting

    line = RedisConnection(parse(address))
    try:
        line.connect()
        asked = time.time()
        seconds, micros = line.call("TIME")
        answered = time.time()
        return {
            "dangers": dangers(line),
            "version": info(line, "server").get("redis_version", ""),
            "appendfsync": setting(line, "appendfsync"),
            "skew": int(seconds) + int(micros) / 1e6 - (asked + answered) / 2,
            "trip": answered - asked,
        }
    except Lost as error:
        raise StoreUnavailable(str(error)) from error
    finally:
        line.drop()
