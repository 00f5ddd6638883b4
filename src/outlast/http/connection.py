"""One connection: bounded in time, and one of a bounded number.

uvicorn bounds neither: a request that never ends, an answer that is never read, or a connection that stays silent would be kept
forever, and each holds a file descriptor of the worker.
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
TELL_SECONDS = 10.0
"""How long a message about what clients do wrong is not logged again."""

log = logging.getLogger("outlast.http")


class Requests(h11.Connection):
    """Refuse a request whose line and headers, or whose trailers, have more than HEADERS_BYTES_MAX bytes.

    h11 by itself refuses only what is incomplete by then: a head that comes in one packet may be longer.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEADERS_BYTES_MAX)

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, (h11.Request, h11.EndOfMessage)):
            size = sum(
                len(name) + len(value) + 4 for name, value in event.headers
            )  # ": " and the line's end
            if isinstance(event, h11.Request):
                size += len(event.method) + len(event.target) + len(" HTTP/1.1") + 3
            if size > HEADERS_BYTES_MAX:
                raise h11.RemoteProtocolError("the headers are too long", error_status_hint=431)
        return event


class ClientFaults:
    """Log what clients do wrong, each message at most once per TELL_SECONDS, with how often it was.

    uvicorn logs a line for each malformed request: whoever reaches the port could fill the disk. This takes
    the place of uvicorn's logger for the connections of one server.
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
        self._until[message] = now + TELL_SECONDS
        untold = self._untold.pop(message, 0)
        before = f" {untold} more since the last such line." if untold else ""
        log.warning("%s%s", message % args if args else message, before)

    def __getattr__(self, name: str) -> Any:
        return getattr(logging.getLogger("uvicorn.error"), name)


class Connection(H11Protocol):
    """A timer runs from the moment it is made, from each answer, and from the first byte of each later request. Whatever is not
    complete when it ends is cut off: the request, the reading of the answer, or the closing.

    When there are too many, the one whose timer has run longest goes. Clients that do as they should are never that one,
    so that a probe is answered while others sit on their connections.
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
        """As the other answers are. A request that was being answered is over: its answer has gone out, or never will."""
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
