"""Keep open pages up to date: one reader for all browsers that show the same page."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlast.execution.shutdown_state import ShutdownState

log = logging.getLogger("outlast.http")

TICK_SECONDS = 1.0
"""How often a reader reads at most."""
READ_SHARE = 20.0
"""A reader rests for this many times the duration of a read, so that open pages load a slow store
by a twentieth at most.
"""
REST_SECONDS_MAX = 30.0
HEARTBEAT_SECONDS = 15.0
STREAM_SECONDS = 600.0
"""After this time a browser reconnects, and is identified again."""
RETRY_MS = 1_000

Read: TypeAlias = Callable[[], Awaitable[str]]
"""Reads and renders the live part of a page."""
News: TypeAlias = Callable[[], AsyncIterator[Any]]
"""Yields when a page may have changed."""


class LivePart:
    """The live part of one page, shared by all browsers that show it."""

    def __init__(self, read: Read, news: News) -> None:
        self._read = read
        self._news = news
        self._changed = asyncio.Event()
        self.html: str | None = None
        self.digest = ""
        self.failed = False
        self.viewers = 0
        self.task: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        """Read the page whenever it may have changed."""
        try:
            async for _ in self._news():
                began = time.monotonic()
                self._take(await self._read())
                await asyncio.sleep(rest_after(time.monotonic() - began))
        except Exception as error:
            # The browsers reconnect and get the error.
            log.info("Could not read a live page: %s", type(error).__name__)
        finally:
            self.failed = True
            self._wake()

    def _take(self, html: str) -> None:
        digest = hashlib.sha256(html.encode()).hexdigest()[:16]
        if digest != self.digest:
            self.html, self.digest = html, digest
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def next_digest(self, seen: str) -> str:
        """Wait until the part differs from what was seen, and return its digest.

        Return also when nothing more will come.
        """
        while self.digest == seen and not self.failed:
            await self._changed.wait()
        return self.digest


class LiveParts:
    """The readers of this process, by what their browsers show and may see."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, ...], LivePart] = {}

    @asynccontextmanager
    async def part(self, key: tuple[str, ...], read: Read, news: News) -> AsyncIterator[LivePart]:
        """Share the reader of a page. It ends with its last browser."""
        part = self._parts.get(key)
        if part is None or part.failed:
            part = self._parts[key] = LivePart(read, news)
            part.task = asyncio.ensure_future(part.follow())
        part.viewers += 1
        try:
            yield part
        finally:
            part.viewers -= 1
            if not part.viewers:
                if self._parts.get(key) is part:
                    del self._parts[key]
                assert part.task is not None
                part.task.cancel()
                with suppress(asyncio.CancelledError):
                    await part.task


def rest_after(took: float) -> float:
    """Return for how long a reader rests after a read, beside the tick that follows anyway."""
    return min(REST_SECONDS_MAX, max(0.0, READ_SHARE * took - TICK_SECONDS))


async def every_tick(seconds: float = TICK_SECONDS) -> AsyncIterator[None]:
    """Yield once per tick."""
    while True:
        yield
        await asyncio.sleep(seconds)


async def after_news(
    events: AsyncIterator[bytes], tick: float = TICK_SECONDS
) -> AsyncIterator[None]:
    """Yield when a stream of events has something, at most once per tick, and at its end."""
    news = asyncio.Event()

    async def listen() -> None:
        try:
            async for part in events:
                if b"data: " in part:
                    news.set()
        finally:
            news.set()

    listening = asyncio.ensure_future(listen())
    try:
        yield
        while not listening.done():
            await news.wait()
            news.clear()
            yield
            await asyncio.sleep(tick)
        with suppress(asyncio.CancelledError):
            await listening
        # Read now and then to find what happens after the end, such as a retry.
        async for _ in every_tick(5 * tick):
            yield
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait((listening,))


class LiveStream(Response):
    """An answer that sends the live part of a page whenever it has changed."""

    media_type = "text/event-stream"

    def __init__(
        self,
        parts: LiveParts,
        key: tuple[str, ...],
        read: Read,
        news: News,
        shutdown: ShutdownState,
        *,
        seen: str,
        send_seconds: float,
        release: Callable[[], None],
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._parts = parts
        self._key = key
        self._read = read
        self._news = news
        self._shutdown = shutdown
        self._seen = seen
        self._send_seconds = send_seconds
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await self._sent(send, start)
            following = asyncio.ensure_future(self._follow(send))
            gone = asyncio.ensure_future(_disconnected(receive))
            try:
                await asyncio.wait(
                    (following, gone, self._shutdown.announced, self._shutdown.close_began),
                    timeout=STREAM_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                has_left = gone.done()
                for task in (following, gone):
                    task.cancel()
                await asyncio.wait((following, gone))
            if not has_left:
                await self._sent(send, {"type": "http.response.body", "body": b""})
        except TimeoutError:
            log.warning(
                "A browser was disconnected, because it did not read for %g s.", self._send_seconds,
                extra={"event": "viewer_dropped"},
            )  # fmt: skip
        finally:
            self._release()

    async def _follow(self, send: Send) -> None:
        await self._sent(send, _chunk(f"retry: {RETRY_MS}\n\n"))
        async with self._parts.part(self._key, self._read, self._news) as part:
            seen = self._seen
            while not part.failed:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        seen = await part.next_digest(seen)
                except TimeoutError:
                    await self._sent(send, _chunk(": nothing new\n\n"))
                    continue
                if part.failed:
                    await self._sent(send, _chunk("event: gone\ndata: reload\n\n"))
                elif part.html is not None:
                    lines = "\n".join(f"data: {line}" for line in part.html.split("\n"))
                    await self._sent(send, _chunk(f"id: {seen}\nevent: page\n{lines}\n\n"))

    async def _sent(self, send: Send, message: Any) -> None:
        async with asyncio.timeout(self._send_seconds):
            await send(message)


def _chunk(text: str) -> dict[str, Any]:
    return {
        "type": "http.response.body",
        "body": text.replace("\r", "").encode(),
        "more_body": True,
    }


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
