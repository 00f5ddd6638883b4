"""Find settings of a server that endanger the data in it.

Opening a store logs them as warnings, or refuses the server if the address says `strict`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.redis.connection import RedisConnection

log = logging.getLogger("outlast.store")

OLDEST = (6, 2)


def info(line: RedisConnection, section: str) -> dict[str, str]:
    """Return a section of INFO, empty if the server does not report it."""
    try:
        text = line.call("INFO", section)
    except StoreUnavailable:
        if not line.is_open:
            line.connect()
        return {}
    except StoreBroken:
        return {}
    return dict(row.split(":", 1) for row in str(text).splitlines() if ":" in row)


def setting(line: RedisConnection, name: str) -> str | None:
    """Return a setting of CONFIG, or None if the server does not report it, as most hosted ones do
    not.
    """
    try:
        answer = line.call("CONFIG", "GET", name)
    except (StoreUnavailable, StoreBroken):
        return None
    return str(answer[1]) if answer else None


def version(told: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the server's version. Valkey reports the Redis version that it is compatible with."""
    numbers = told.get("redis_version", "").split(".")
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 else None


def dangers(line: RedisConnection) -> list[str]:
    """Return one sentence per danger that says what may be lost."""
    found = []
    if info(line, "replication").get("role") == "slave":
        found.append(
            "this is a replica: it accepts no writes, and its data may be stale. Give the "
            "address of the master."
        )
    persistence = info(line, "persistence")
    if persistence.get("aof_enabled") == "0":
        found.append(
            "appendonly is off: when the server ends, everything since its last snapshot is "
            "lost, or everything. Set `appendonly yes`."
        )
    elif not persistence:
        found.append("the server does not tell whether appendonly is on (INFO persistence).")
    elif (fsync := setting(line, "appendfsync")) is None:
        log.info("Could not check appendfsync: this user may not call CONFIG GET.")
    elif fsync == "no":
        found.append(
            "appendfsync is no: a crash of its machine loses what the kernel had not written, "
            "about 30 seconds."
        )
    policy = info(line, "memory").get("maxmemory_policy", "noeviction")
    limited = info(line, "memory").get("maxmemory", "0") != "0"
    if policy != "noeviction" and not policy.startswith("volatile-") and limited:
        found.append(
            f"maxmemory-policy is {policy}: a full server drops runs, journals and sessions. "
            "Set `maxmemory-policy noeviction`."
        )
    return found
