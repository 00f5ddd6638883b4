"""Make calls over one connection, and reconnect when it is lost.

This module uses redis-py's connections but not its client. The client repeats a command by itself
when a connection is lost, and a commit must be repeated only when the first one can no longer be
executed.
"""

from __future__ import annotations

import logging
from typing import Any

from redis.exceptions import BusyLoadingError, NoScriptError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.deadline import CALL_SECONDS, time_left
from outlast.store.redis.address import Address, Wire
from outlast.store.redis.failures import away, refused
from outlast.store.redis.scripts import Script

log = logging.getLogger("outlast.store")


class Lost(Exception):
    """The connection was lost during a call. Whether the call was executed is unknown."""


class Late(Lost):
    """The answer takes longer than the caller waits.

    The connection stays open, and the late answer is read before any other.
    """


def packed(*command: str | bytes | float) -> bytes:
    """Encode a command in the Redis protocol.

    Raise UnicodeEncodeError for text that is not UTF-8.
    """
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        sent = part if isinstance(part, bytes) else str(part).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(sent), sent))
    return b"".join(parts)


class RedisConnection:
    """One connection, opened when it is first needed. Only one thread at a time may use it."""

    def __init__(self, address: Address, seconds_max: float = CALL_SECONDS) -> None:
        self._address = address
        self.seconds_max = seconds_max
        """How long to wait for an answer."""
        self._connection: Wire | None = None
        self._owes = False
        """An answer that came too late for its caller is still to be read."""

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    @property
    def owes(self) -> bool:
        return self._owes

    def connect(self) -> None:
        """Connect if there is no connection. Raise StoreUnavailable if that fails."""
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
        """Send a command and return the answer.

        Raise Late, Lost, StoreUnavailable or StoreBroken.
        """
        sent = packed(*command)
        self.catch_up()
        self.connect()
        return self._answer(sent, seconds)

    def catch_up(self) -> None:
        """Read and discard the answer to a late call: then that call has ended.

        Raise Lost if the connection is lost.
        """
        if self._owes:
            try:
                self._answer(b"", None)
            except (NoScriptError, StoreUnavailable, StoreBroken) as error:
                log.debug("%s: an answer came too late: %s", self._address.place, error)
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
            # The host name may resolve to a better address next time.
            self.drop()
            raise refused(error, self._address.place) from error
        except UnicodeDecodeError as error:
            self.drop()
            raise StoreBroken(
                f"{self._address.place}: a text in it is damaged ({error})."
            ) from error
        except BaseException:
            # An answer may still be in flight.
            self.drop()
            raise
        return answer

    def run(
        self,
        script: Script,
        key: str,
        *arguments: str | bytes | float,
        seconds: float | None = None,
    ) -> Any:
        """Call a script by its SHA. Send the whole script if the server does not know it."""
        try:
            return self.call("EVALSHA", script.sha, 1, key, *arguments, seconds=seconds)
        except NoScriptError:
            return self.call("EVAL", script.text, 1, key, *arguments, seconds=seconds)

    def drop(self) -> None:
        """Close the connection. A forked child closes only its own copy of the descriptor."""
        self._owes = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
