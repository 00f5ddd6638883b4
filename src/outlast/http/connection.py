"""Bound each connection in time, and bound their number.

uvicorn bounds neither. It would keep a request that never ends, an answer that is never read, or a
silent connection forever, and each holds a file descriptor of the worker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 64
HEADERS_BYTES_MAX = 8192
LOG_SECONDS = 10.0
"""How long a repeated message about a client's fault is not logged."""

log = logging.getLogger("outlast.http")


class Requests(h11.Connection):
    """Refuse a request whose line and headers, or whose trailers, exceed HEADERS_BYTES_MAX bytes.

    h11 itself refuses only what is incomplete by then: headers that arrive in one packet may be
    longer.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEADERS_BYTES_MAX)

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, (h11.Request, h11.EndOfMessage)):
            # 4 bytes for ": " and the line end.
            size = sum(len(name) + len(value) + 4 for name, value in event.headers)
            if isinstance(event, h11.Request):
                size += len(event.method) + len(event.target) + len(" HTTP/1.1") + 3
            if size > HEADERS_BYTES_MAX:
                raise h11.RemoteProtocolError("the headers are too long", error_status_hint=431)
        return event


class ClientFaults:
    """Log clients' faults, each message at most once per TELL_SECONDS, with a count.

    uvicorn logs a line for each malformed request, so any client that reaches the port could fill
    the disk. This replaces uvicorn's logger for the connections of one server.
    """

    level = logging.WARNING
    """uvicorn compares it to decide whether to trace."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def warning(self, message: str, *args: object) -> None:
        now = time.monotonic()
        if now < self._until.get(message, 0.0):
            self._untold[message] = self._untold.get(message, 0) + 1
            return
        self._until[message] = now + LOG_SECONDS
        untold = self._untold.pop(message, 0)
        before = f" {untold} more since the last such line." if untold else ""
        log.warning("%s%s", message % args if args else message, before)

    def __getattr__(self, name: str) -> Any:
        return getattr(logging.getLogger("uvicorn.error"), name)


class Connection(H11Protocol):
    """A connection with a timer.

    The timer starts when the connection is made, after each answer, and at the first byte of each
    later request. When it ends, the connection is cut, whether the request is incomplete, the
    answer unread or the connection not yet closed.

    When there are too many connections, the one whose timer has run longest is cut. That is never a
    well-behaved client, so a probe is answered while other clients hold their connections open.
    """

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0

    def __init__(self, config: Any, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.conn = Requests()
        self.logger = config.client_faults

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.access_log = False
        self._restart_timer()
        if len(self.connections) >= CONNECTIONS_MAX:
            others: list[Any] = [other for other in self.connections if other is not self]
            min(others, key=lambda other: other._since)._cut()

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is not None:
            self._restart_timer()
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._restart_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer 400 in the form of the other answers, and close the connection.

        A request in progress is over: its answer has been sent, or never will be.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = b'{"error":"%s"}' % msg.encode("ascii")
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("cache-control", "no-store"),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=400, headers=headers, reason="Bad Request"),
                h11.Data(body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._since = self.loop.time()
        self._timer = self.loop.call_later(REQUEST_SECONDS_MAX, self._cut)

    def _cut(self) -> None:
        self.connections.discard(self)
        self.transport.abort()


class ApiConnection(Connection):
    """A connection whose request may take long, as a stream of events does.

    Only a request that is incomplete and an answer that is not read are bounded in time. The number
    of connections is bounded by the server's configuration.
    """

    def __init__(self, config: Any, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self._unread_seconds: float = config.unread_seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        H11Protocol.connection_made(self, transport)
        self.access_log = False
        self._restart_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            # The headers are complete. The API bounds the time of the body.
            self._stop_timer()

    def on_response_complete(self) -> None:
        H11Protocol.on_response_complete(self)
        self._stop_timer()

    def pause_writing(self) -> None:
        """Note that the client does not read. Cut the connection if that stays so."""
        super().pause_writing()
        self._stop_timer()
        self._timer = self.loop.call_later(self._unread_seconds, self._cut_unread)

    def resume_writing(self) -> None:
        self._stop_timer()
        super().resume_writing()

    def _cut_unread(self) -> None:
        self.logger.warning("A client was dropped: it did not read its answer.")
        self._cut()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
