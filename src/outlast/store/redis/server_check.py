"""Check a server when a store opens: its version, and settings that endanger the data in it.

Dangers are logged as warnings. If the address says `strict`, the server is rejected for them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from outlast.errors import SettingsError, StoreBroken, StoreUnavailable
from outlast.store.redis.address import Address
from outlast.store.redis.connection import RedisConnection

log = logging.getLogger("outlast.store")

OLDEST = (6, 2)

_warned: set[tuple[str, str]] = set()
"""The servers and dangers that this process has already warned of."""


def check(line: RedisConnection, address: Address) -> str:
    """Return the server's run id, empty if it does not report one.

    Raise StoreBroken for a version that is too old, and SettingsError for dangers that the address
    does not accept.
    """
    server_info = info(line, "server")
    found = version(server_info)
    if found is not None and found < OLDEST:
        raise StoreBroken(
            f"{address.place}: the server is Redis {server_info['redis_version']}; Outlast needs "
            "6.2 or later."
        )
    risks = dangers(line)
    if risks and address.strict:
        raise SettingsError(
            f"{address.place}: rejected, because its address says `strict`: {' '.join(risks)} "
            "(An address that was taken from REDIS_URL or REDIS_HOST "
            "is strict. To use this server anyway, set OUTLAST_STORE to its address.)"
        )
    for risk in risks:
        if (address.server, risk) not in _warned:
            _warned.add((address.server, risk))
            log.warning("%s: %s", address.server, risk)
    return server_info.get("run_id", "")


def run_id(line: RedisConnection) -> str:
    """Return the server's run id, empty if it does not report one."""
    return info(line, "server").get("run_id", "")


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


def version(server_info: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the server's version. Valkey reports the Redis version that it is compatible with."""
    numbers = server_info.get("redis_version", "").split(".")
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
