"""Store addresses: `sqlite:///outlast.db`, `sqlite:////data/outlast.db?synchronous=normal`, `memory:`."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

from outlast.errors import SettingsError
from outlast.store.protocol import Store

PLANNED = ("postgresql", "postgres", "redis", "rediss", "file")


def store_at(address: str, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2) -> Store:
    """The store of an address, not opened yet. SettingsError for one that no store answers to."""
    scheme = address.partition(":")[0]
    if scheme == "memory":
        from outlast.store.sqlite.store import SQLiteStore

        return SQLiteStore(None, clock=clock)
    if scheme == "sqlite":
        from outlast.store.sqlite.store import SQLiteStore

        path, options = _sqlite_parts(address)
        return SQLiteStore(
            path, clock=clock, synchronous=options.get("synchronous", "full"), heartbeat=heartbeat
        )
    if scheme in PLANNED:
        raise SettingsError(
            f"{scheme} is not supported yet in this version: use sqlite:///outlast.db or memory:."
        )
    raise SettingsError(
        f"no store answers to {address!r}. Use sqlite:///outlast.db (relative), sqlite:////data/outlast.db or memory:."
    )


def _sqlite_parts(address: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(address)
    if parts.netloc:
        raise SettingsError(
            f"{address!r} names a host, {parts.netloc!r}. A path has three slashes if relative (sqlite:///outlast.db), "
            "four if absolute (sqlite:////data/outlast.db)."
        )
    path = unquote(parts.path)[1:]
    options = dict(parse_qsl(parts.query))
    unknown = set(options) - {"synchronous"}
    if unknown:
        raise SettingsError(
            f"unknown option {', '.join(sorted(unknown))} in {address!r}. Known: synchronous."
        )
    if options.get("synchronous", "full").lower() not in ("full", "normal"):
        raise SettingsError(f"synchronous in {address!r} must be full or normal.")
    if not path or "\0" in path:
        raise SettingsError(f"{address!r} has no usable path: sqlite:///outlast.db is a file in this folder.")
    return path, {name: value.lower() for name, value in options.items()}
