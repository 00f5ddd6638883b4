"""One connection: bounded in time, and one of a bounded number.

uvicorn bounds neither: a request that never ends, an answer that is never read, or a connection that stays silent would be kept
forever, and each holds a file descriptor of the worker.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 64


class Connection(H11Protocol):
    """A timer runs from the moment it is made, from each answer, and from the first byte of each later request. Whatever is not
    complete when it ends is cut off: the request, the reading of the answer, or the closing.

    When there are too many, the one whose timer has run longest goes. Clients that do as they should are never that one,
    so that a probe is answered while others sit on their connections.
    """

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0

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
