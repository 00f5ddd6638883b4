"""Send the events of a watch as server-sent events.

Each event has its cursor as `id`, so a browser continues where it was: it sends the last one as the
header Last-Event-ID. A stream ends with the run, with a drain of this process, and when its client
has gone or does not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlast.codec.documents import render
from outlast.errors import Draining, OutlastError
from outlast.execution.shutdown_state import ShutdownState
from outlast.http.rest.problems import NO_STORE, problem_of

log = logging.getLogger("outlast.http")

HEARTBEAT_SECONDS = 15.0
"""How often a comment is sent while nothing happens, so that no proxy closes the connection."""
RETRY_MS = 1_000
"""How long a browser waits before it reconnects."""


class Watched(Protocol):
    """A watch, as a stream uses it."""

    cursor: str | None
    ended: bool

    async def next_events(self, timeout: float | None = None) -> list[Any]:
        """Return what has happened, or nothing after the time-out and at the end."""

    async def aclose(self) -> None:
        """Close the watch."""


class EventStream(Response):
    """An answer that follows a watch until it ends."""

    media_type = "text/event-stream"

    def __init__(
        self,
        watch: Watched,
        document: Callable[[Any], Any],
        shutdown: ShutdownState,
        *,
        send_seconds: float,
        release: Callable[[], None],
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(headers={**NO_STORE, "x-accel-buffering": "no"})
        # The length of the answer is not known.
        del self.headers["content-length"]
        self._watch = watch
        self._document = document
        self._shutdown = shutdown
        self._send_seconds = send_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await self._answer(receive, send)
        except TimeoutError:
            log.warning(
                "A viewer was disconnected, because it did not read for %g s.", self._send_seconds,
                extra={"event": "viewer_dropped"},
            )  # fmt: skip
        finally:
            self._release()
            await self._watch.aclose()

    async def _answer(self, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await self._sent(send, start)
        following = asyncio.ensure_future(self._follow(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait(
                (following, gone, self._shutdown.announced, self._shutdown.close_began),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for task in (following, gone):
                task.cancel()
            await asyncio.wait((following, gone))
        if gone.done() and not gone.cancelled():
            return
        if following.cancelled():
            # This process ends. Another one continues at the cursor.
            await self._sent(send, _body(self._farewell(), more=True))
        else:
            following.result()
        await self._sent(send, _body(b"", more=False))

    async def _follow(self, send: Send) -> None:
        await self._sent(send, _body(f"retry: {RETRY_MS}\n\n".encode(), more=True))
        while not self._watch.ended:
            try:
                events = await self._watch.next_events(self._heartbeat_seconds)
            except Draining:
                await self._sent(send, _body(self._farewell(), more=True))
                return
            except OutlastError as error:
                problem = render(problem_of(error, masked=True).document())
                await self._sent(send, _body(b"event: problem\ndata: " + problem + b"\n\n"))
                return
            if events:
                text = b"".join(map(self._event, events))
            else:
                text = b"" if self._watch.ended else b": nothing new\n\n"
            if text:
                await self._sent(send, _body(text))

    def _event(self, event: Any) -> bytes:
        head = f"id: {event.cursor}\nevent: {event.kind}\ndata: ".encode("ascii")
        return head + render(self._document(event)) + b"\n\n"

    def _farewell(self) -> bytes:
        cursor = self._watch.cursor
        last = "" if cursor is None else f"id: {cursor}\n"
        return f": this server shuts down\n{last}retry: {RETRY_MS}\n\n".encode("ascii")

    async def _sent(self, send: Send, message: dict[str, Any]) -> None:
        """Send a part. Raise TimeoutError if the client does not read."""
        async with asyncio.timeout(self._send_seconds):
            await send(message)


def _body(text: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": more}


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
