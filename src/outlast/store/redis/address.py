"""Parse the address of a Redis store, and make connections to it."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl, quote, unquote

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from outlast.errors import SettingsError
from outlast.settings.redaction import masked
from outlast.store.address import BAD_ADDRESS, PORT, server_parts

CONNECT_SECONDS = 5.0
"""The bound on connecting, unless a call may take less. It does not bound the lookup of a host
name. Only the resolver's own settings do (`options timeout:` and `attempts:` in resolv.conf).
"""

_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
_OPTIONS = ("prefix", "strict", "wait", "db", *_TLS)
_PREFIX = re.compile(r"[^{}\x00-\x20\x7f]{1,100}")


class Wire(Protocol):
    """The part of redis-py's connection that is used here. redis-py has no annotations."""

    _sock: socket.socket

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_packed_command(self, command: Sequence[bytes], check_health: bool = False) -> None: ...
    def read_response(self) -> Any: ...
    def can_read(self, timeout: float) -> bool: ...


class Address(NamedTuple):
    make: Callable[[float], Wire]
    """Return a connection that is not open yet, with a bound in seconds on each answer."""
    place: str
    """The address as shown to people and in logs: without the password."""
    server: str
    """The place without the prefix."""
    prefix: str
    """The prefix of every key. The braces keep the keys on one node of a cluster."""
    db: int
    strict: bool
    wait: int
    """The number of replicas that a commit waits for."""


def parse(address: str) -> Address:
    """Parse an address. Raise SettingsError for a bad one.

    No error message contains the password.
    """
    parts = server_parts(address)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise SettingsError(
            f"the port in a redis: address must be {PORT}. Or else: {BAD_ADDRESS}"
        ) from None
    place = masked(address).partition("?")[0]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown and "@" in parts.query and "@" not in parts.netloc:
        # What looks like an option may be part of a password.
        raise SettingsError(BAD_ADDRESS)
    if unknown:
        raise SettingsError(
            f"unknown option {', '.join(unknown)} in {place}. Known: {', '.join(_OPTIONS)}."
        )
    path = unquote(parts.path)
    if parts.scheme == "unix":
        kind: Callable[..., object] = UnixDomainSocketConnection
        where: dict[str, Any] = {"path": path}
        if host or not path.startswith("/"):
            raise SettingsError(
                f"{place} has no socket path. Write it like unix:///run/redis.sock."
            )
        db = _number(options.get("db", "0"), "db", place)
    else:
        kind = SSLConnection if parts.scheme == "rediss" else Connection
        where = {"host": host or "localhost", "port": port or 6379}
        db = _number(options.get("db", path.strip("/") or "0"), "the database", place)
    if kind is SSLConnection:
        where |= {name: options[name] for name in _TLS if name in options}
    elif any(name in options for name in _TLS):
        raise SettingsError(f"{place}: {', '.join(_TLS)} apply only to rediss:// addresses.")
    fixed: dict[str, Any] = {
        "db": db, "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "retry": Retry(NoBackoff(), 0), "protocol": 2,
        "encoding": "utf-8", "encoding_errors": "strict", "decode_responses": True,
    }  # fmt: skip
    if kind is not UnixDomainSocketConnection:
        fixed["socket_keepalive"] = True
    prefix = options.get("prefix", "outlast")
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError(
            f"prefix in {place} must be 1 to 100 characters without braces, spaces and control "
            "characters."
        )

    def make(seconds: float) -> Wire:
        timeouts = {
            "socket_timeout": seconds,
            "socket_connect_timeout": min(seconds, CONNECT_SECONDS),
        }
        return cast("Wire", kind(**where, **fixed, **timeouts))

    return Address(
        make,
        place if prefix == "outlast" else f"{place}?prefix={quote(prefix)}",
        place,
        f"{{{prefix}}}:",
        db,
        _flag(options.get("strict", "0"), place),
        _number(options.get("wait", "0"), "wait", place),
    )


def _number(text: str, name: str, place: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise SettingsError(f"{name} in {place} must be a number, not {text[:40]!r}.")
    return int(text)


def _flag(text: str, place: str) -> bool:
    if text.lower() not in ("", "1", "yes", "true", "0", "no", "false"):
        raise SettingsError(f"strict in {place} must be 1 or 0, not {text[:40]!r}.")
    return text.lower() in ("", "1", "yes", "true")
