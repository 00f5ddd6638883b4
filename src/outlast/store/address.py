"""Create stores from addresses.

Examples: `sqlite:///outlast.db`, `postgresql://…`, `redis://…`, `file:///dir`, `memory:`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from outlast.errors import SettingsError
from outlast.settings.redaction import masked
from outlast.store.paths import check_file
from outlast.store.protocol import Store

ELSEWHERE = {
    "postgresql": ("outlast.store.postgres.store", "PostgresStore", "postgres"),
    "postgres": ("outlast.store.postgres.store", "PostgresStore", "postgres"),
    "redis": ("outlast.store.redis.store", "RedisStore", "redis"),
    "rediss": ("outlast.store.redis.store", "RedisStore", "redis"),
    "unix": ("outlast.store.redis.store", "RedisStore", "redis"),
    "file": ("outlast.store.file.store", "FileStore", None),
}
"""The module and class of each scheme's store, and the extra it needs. Each store parses the rest
of its address itself, in `at`.
"""


BAD_ADDRESS = (
    "the store's address cannot be read. Percent-encode special characters in the password: "
    "`@` is %40, `/` is %2F, `?` is %3F, "
    "`#` is %23, `[` is %5B, and `%` itself is %25."
)


PORT_MAX = 65_535
PORT = f"a number from 1 to {PORT_MAX}"


def store_at(
    address: str, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2
) -> Store:
    """Return the store of an address, not opened yet.

    Raise SettingsError if no store has such an address, or the package it needs is missing.
    """
    scheme, address = _with_scheme(address)
    if scheme == "memory":
        from outlast.store.sqlite.store import SQLiteStore

        return SQLiteStore(None, clock=clock)
    if scheme == "sqlite":
        from outlast.store.sqlite.store import SQLiteStore

        path, options = _sqlite_parts(address)
        check_file(path)
        return SQLiteStore(
            path, clock=clock, synchronous=options.get("synchronous", "full"), heartbeat=heartbeat
        )
    if scheme in ELSEWHERE:
        module, name, extra = ELSEWHERE[scheme]
        try:
            found = getattr(import_module(module), name)
        except ImportError as error:
            raise SettingsError(
                f"{scheme}: addresses need the package {error.name}: pip install "
                f"'outlast[{extra}]'."
            ) from error
        store: Store = found.at(address, clock=clock, heartbeat=heartbeat)
        return store
    raise _no_store(address)


def check_address(address: str) -> None:
    """Raise SettingsError if no store has such an address. This needs no server's package."""
    scheme, address = _with_scheme(address)
    if scheme in ("sqlite", "file", "memory"):
        store_at(address)
    elif scheme in ELSEWHERE:
        server_parts(address)
    else:
        raise _no_store(address)


def parts_of(address: str) -> SplitResult:
    """Split an address. Raise SettingsError, which quotes none of it, if it is not a URL."""
    try:
        return urlsplit(address)
    except ValueError:
        raise SettingsError(BAD_ADDRESS) from None


def server_parts(address: str) -> SplitResult:
    """Split the address of a server.

    Raise SettingsError if it is not a URL, if it lacks the two slashes, or if part of a password
    may have ended up in the path, query or fragment.
    """
    parts = parts_of(address)
    if (
        "@" in parts.path
        or parts.fragment
        or any("@" in part.partition("=")[0] for part in parts.query.split("&"))
    ):
        raise SettingsError(BAD_ADDRESS)
    if not address.startswith(f"{parts.scheme}://"):
        example = {
            "unix": "unix:///run/redis.sock",
            "redis": "redis://host:6379/0",
            "rediss": "rediss://host:6379/0",
        }
        url = example.get(
            parts.scheme, f"{parts.scheme}:///database or {parts.scheme}://user@host/database"
        )
        raise SettingsError(
            f"after {parts.scheme}: an address of a server has two slashes, as in {url}."
        )
    return parts


def _with_scheme(address: str) -> tuple[str, str]:
    """Return the scheme in lower case, and the address with that scheme."""
    scheme, colon, rest = address.partition(":")
    return scheme.lower(), f"{scheme.lower()}{colon}{rest}"


def _no_store(address: str) -> SettingsError:
    return SettingsError(
        f"{masked(address)[:80]!r} is not the address of a store. "
        "Use sqlite:///outlast.db (relative), sqlite:////data/outlast.db, "
        "postgresql://user@host/database, redis://host:6379/0, file:///data/outlast or memory:."
    )


def _sqlite_parts(address: str) -> tuple[str, dict[str, str]]:
    url, parts = masked(address), parts_of(address)
    if parts.netloc:
        raise SettingsError(
            f"{url!r} names a host. A path has three slashes if relative (sqlite:///outlast.db), "
            "four if absolute (sqlite:////data/outlast.db)."
        )
    if not address.startswith("sqlite:///"):
        path = parts.path.lstrip("/") or "outlast.db"
        raise SettingsError(
            f"{url!r} could be relative or absolute. Write sqlite:///{path} for a file below "
            f"this folder, or sqlite:////{path} for an "
            "absolute path."
        )
    path = unquote(parts.path)[1:]
    options = dict(parse_qsl(parts.query))
    unknown = set(options) - {"synchronous"}
    if unknown:
        raise SettingsError(
            f"unknown option {', '.join(sorted(unknown))} in {url!r}. Known: synchronous."
        )
    if options.get("synchronous", "full").lower() not in ("full", "normal"):
        raise SettingsError(f"synchronous in {url!r} must be full or normal.")
    if not path or "\0" in path:
        raise SettingsError(
            f"{url!r} has no usable path: sqlite:///outlast.db is a file in this folder."
        )
    return path, {name: value.lower() for name, value in options.items()}
