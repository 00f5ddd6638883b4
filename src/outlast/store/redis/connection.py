"""Connections: how an address is read, and one connection with the calls that go over it.

redis-py's client is not used, but its connections are: the client repeats a command by itself when a connection is lost, and
a commit must be repeated only when it is known that the first one cannot be executed any more.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl, quote, unquote

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from outlast.errors import SettingsError, StoreBroken, StoreUnavailable
from outlast.settings.redaction import masked
from outlast.store.address import BAD_ADDRESS, PORT, server_parts
from outlast.store.deadline import CALL_SECONDS, time_left
from outlast.store.redis.failures import away, refused
from outlast.store.redis.scripts import Script

log = logging.getLogger("outlast.store")

CONNECT_SECONDS = 5.0
"""The bound on connecting, unless a call may take less. It does not bound the lookup of a host's name: only the
resolver's own settings do (`options timeout:` and `attempts:` in resolv.conf)."""

_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
_OPTIONS = ("prefix", "strict", "wait", "db", *_TLS)
_PREFIX = re.compile(r"[^{}\x00-\x20\x7f]{1,100}")


class Wire(Protocol):
    """What is used of a connection of redis-py's, which has no annotations."""

    _sock: socket.socket

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_packed_command(self, command: Sequence[bytes], check_health: bool = False) -> None: ...
    def read_response(self) -> Any: ...
    def can_read(self, timeout: float) -> bool: ...


class Address(NamedTuple):
    make: Callable[[float], Wire]
    """Make a connection that is not connected yet, and waits for each answer that many seconds."""
    place: str
    """For people and logs: without the password."""
    server: str
    """The same without the prefix."""
    prefix: str
    """What every key begins with. The braces keep the keys on one node of a cluster."""
    db: int
    strict: bool
    wait: int
    """For how many replicas a commit waits."""


def parse(address: str) -> Address:
    """SettingsError for an address that cannot be one. Nothing that is said of it contains its password."""
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
        raise SettingsError(BAD_ADDRESS)  # what looks like an option may be a part of a password
    if unknown:
        raise SettingsError(
            f"unknown option {', '.join(unknown)} in {place}. Known: {', '.join(_OPTIONS)}."
        )
    path = unquote(parts.path)
    if parts.scheme == "unix":
        kind: Callable[..., object] = UnixDomainSocketConnection
        where: dict[str, Any] = {"path": path}
        if host or not path.startswith("/"):
            raise SettingsError(f"{place} names no socket: unix:///run/redis.sock is one.")
        db = _number(options.get("db", "0"), "db", place)
    else:
        kind = SSLConnection if parts.scheme == "rediss" else Connection
        where = {"host": host or "localhost", "port": port or 6379}
        db = _number(options.get("db", path.strip("/") or "0"), "the database", place)
    if kind is SSLConnection:
        where |= {name: options[name] for name in _TLS if name in options}
    elif any(name in options for name in _TLS):
        raise SettingsError(f"{place}: {', '.join(_TLS)} are for rediss://.")
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
            f"prefix in {place} must be 1 to 100 characters without braces, spaces and control characters."
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


class Lost(Exception):
    """The connection was lost in the middle of a call: nobody knows whether it was executed."""


class Late(Lost):
    """The answer takes too long for who asked. The connection stands, and the answer is read before anything else is."""


def packed(*command: str | bytes | float) -> bytes:
    """A command as it is sent. UnicodeEncodeError for a text that cannot be."""
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        sent = part if isinstance(part, bytes) else str(part).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(sent), sent))
    return b"".join(parts)


class RedisConnection:
    """One connection, made when it is first needed. Not for two threads at once."""

    def __init__(self, address: Address, seconds_max: float = CALL_SECONDS) -> None:
        self._address = address
        self.seconds_max = seconds_max
        """How long an answer is waited for."""
        self._connection: Wire | None = None
        self._owes = False
        """An answer that came too late for who asked is still to be read."""

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    @property
    def owes(self) -> bool:
        return self._owes

    def connect(self) -> None:
        """StoreUnavailable if that cannot be."""
        if self._connection is None:
            connection = self._address.make(time_left(self.seconds_max))
            try:
                connection.connect()
            except RedisError as error:
                connection.disconnect()
                raise refused(error, self._address.place) from error
            except OSError as error:
                connection.disconnect()
                raise away(error, self._address.place) from error
            self._connection = connection

    def call(self, *command: str | bytes | float, seconds: float | None = None) -> Any:
        """The server's answer. Late, Lost, StoreUnavailable, or StoreBroken."""
        sent = packed(*command)
        self.catch_up()
        self.connect()
        return self._answer(sent, seconds)

    def catch_up(self) -> None:
        """Read the answer that is owed, whatever it is: then what it is the answer to is over. Lost, if the connection is."""
        if self._owes:
            try:
                self._answer(b"", None)
            except (NoScriptError, StoreUnavailable, StoreBroken) as error:
                log.debug("%s: too late an answer: %s", self._address.place, error)
            self._owes = False

    def _answer(self, sent: bytes, seconds: float | None) -> Any:
        connection = self._connection
        assert connection is not None
        try:
            connection._sock.settimeout(time_left(self.seconds_max))
            if sent:
                connection.send_packed_command([sent], check_health=False)
            if seconds is not None and not connection.can_read(seconds):
                self._owes = True
                raise Late(f"no answer within {seconds} seconds")
            answer = connection.read_response()
        except (NoScriptError, Late):
            raise
        except BusyLoadingError as error:
            self.drop()
            raise refused(error, self._address.place) from error
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            self.drop()
            raise Lost(str(error)) from error
        except RedisError as error:
            self.drop()  # the next address of the same name may be a better one
            raise refused(error, self._address.place) from error
        except UnicodeDecodeError as error:
            self.drop()
            raise StoreBroken(
                f"{self._address.place}: a text in it is damaged ({error})."
            ) from error
        except BaseException:
            self.drop()  # an answer may still be on its way
            raise
        return answer

    def run(
        self,
        script: Script,
        key: str,
        *arguments: str | bytes | float,
        seconds: float | None = None,
    ) -> Any:
        """Call a script by its SHA; one that the server does not know is sent whole."""
        try:
            return self.call("EVALSHA", script.sha, 1, key, *arguments, seconds=seconds)
        except NoScriptError:
            return self.call("EVAL", script.text, 1, key, *arguments, seconds=seconds)

    def drop(self) -> None:
        """Also in a forked child: only its own copy of the descriptor is closed there."""
        self._owes = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
