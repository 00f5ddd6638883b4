"""Store addresses: `sqlite:///outlast.db`, `postgresql://…`, `redis://…`, `file:///dir`, `memory:`."""

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
"""Where the store of a scheme is, and which extra it needs. Each reads the rest of its address itself: `at`."""


BAD_ADDRESS = (
    "the store's address cannot be read. Percent-encode special characters in the password: `@` is %40, `/` is %2F, `?` is %3F, "
    "`#` is %23, `[` is %5B, and `%` itself is %25."
)


PORT_MAX = 65_535
PORT = f"a number from 1 to {PORT_MAX}"


def store_at(
    address: str, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2
) -> Store:
    """The store of an address, not opened yet. SettingsError for one that no store answers to."""
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
                f"{scheme}: addresses need the package {error.name}: pip install 'outlast[{extra}]'."
            ) from error
        store: Store = found.at(address, clock=clock, heartbeat=heartbeat)
        return store
    raise _no_store(address)


def check_address(address: str) -> None:
    """SettingsError for one that no store answers to. No package of a server's is needed for that."""
    scheme, address = _with_scheme(address)
    if scheme in ("sqlite", "file", "memory"):
        store_at(address)
    elif scheme in ELSEWHERE:
        server_parts(address)
    else:
        raise _no_store(address)


def parts_of(address: str) -> SplitResult:
    """SettingsError for what is no URL. Nothing of it is in the message."""
    try:
        return urlsplit(address)
    except ValueError:
        raise SettingsError(BAD_ADDRESS) from None


def server_parts(address: str) -> SplitResult:
    """The same; also for an address in which a part of a password may have become something else."""
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
        shown = example.get(
            parts.scheme, f"{parts.scheme}:///database or {parts.scheme}://user@host/database"
        )
        raise SettingsError(
            f"after {parts.scheme}: an address of a server has two slashes, as in {shown}."
        )
    return parts


def _with_scheme(address: str) -> tuple[str, str]:
    """The scheme in lower case, and the address with it so."""
    scheme, colon, rest = address.partition(":")
    return scheme.lower(), f"{scheme.lower()}{colon}{rest}"


def _no_store(address: str) -> SettingsError:
    return SettingsError(
        f"no store answers to {masked(address)[:80]!r}. Use sqlite:///outlast.db (relative), sqlite:////data/outlast.db, "
        "postgresql://user@host/database, redis://host:6379/0, file:///data/outlast or memory:."
    )


def _sqlite_parts(address: str) -> tuple[str, dict[str, str]]:
    shown, parts = masked(address), parts_of(address)
    if parts.netloc:
        raise SettingsError(
            f"{shown!r} names a host. A path has three slashes if relative (sqlite:///outlast.db), "
            "four if absolute (sqlite:////data/outlast.db)."
        )
    if not address.startswith("sqlite:///"):
        path = parts.path.lstrip("/") or "outlast.db"
        raise SettingsError(
            f"{shown!r} could be relative or absolute. Write sqlite:///{path} for a file below this folder, or sqlite:////{path} for "
            "one that begins at the root."
        )
    path = unquote(parts.path)[1:]
    options = dict(parse_qsl(parts.query))
    unknown = set(options) - {"synchronous"}
    if unknown:
        raise SettingsError(
            f"unknown option {', '.join(sorted(unknown))} in {shown!r}. Known: synchronous."
        )
    if options.get("synchronous", "full").lower() not in ("full", "normal"):
        raise SettingsError(f"synchronous in {shown!r} must be full or normal.")
    if not path or "\0" in path:
        raise SettingsError(
            f"{shown!r} has no usable path: sqlite:///outlast.db is a file in this folder."
        )
    return path, {name: value.lower() for name, value in options.items()}
