"""Define `Watch`, which follows a run behind the HTTP API."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import NoReturn, Self

from outlast.client.run import run_path
from outlast.client.transport import Transport
from outlast.client.watch_reader import WatchReader
from outlast.codec.identifiers import check_name
from outlast.engine.watching.events import EndEvent, WatchEvent

EVENTS_MAX = 256
"""How many events are returned at once and read ahead, at most."""
NAME_LENGTH_MAX = 10_000


class Watch:
    """The events of a stream or of a run. Iterate over it with `async for`.

    A connection that breaks is opened again, and the watch continues after its cursor. Read it in
    one task at a time.
    """

    def __init__(
        self, transport: Transport, id: str, stream: str | None, after: str | None
    ) -> None:
        self.cursor = after
        """The cursor of the last event, or the one that the watch began with."""
        self.ended = False
        """Whether the run has ended and all events were returned, or the watch was closed."""
        self._transport = transport
        self._id = id
        if stream is None:
            self._path = run_path(id, "watch")
        else:
            self._path = run_path(id, "streams", check_name(stream, NAME_LENGTH_MAX, "stream"))
        self._reader: WatchReader | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        reader = self._started()
        await reader.opened.wait()
        if reader.failure is not None:
            self._fail(reader.failure)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the watch. It returns no more events."""
        self.ended = True
        await self._stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        if self.ended:
            raise StopAsyncIteration
        event = self._handed_out(await self._started().found.get())
        await self._stop_at_end()
        return event

    async def next_events(self, timeout: float | None = None) -> list[WatchEvent]:
        """Wait for at least one event, and return all that are there, up to 256.

        Return an empty list after `timeout` seconds without any, and once the watch has `ended`.
        """
        if self.ended:
            return []
        found = self._started().found
        try:
            async with asyncio.timeout(timeout):
                events = [self._handed_out(await found.get())]
        except TimeoutError:
            return []
        while not found.empty() and len(events) < EVENTS_MAX:
            following = found.get_nowait()
            if following is None:
                # The next call raises the failure.
                found.put_nowait(None)
                break
            events.append(self._handed_out(following))
        await self._stop_at_end()
        return events

    @property
    def is_final(self) -> bool:
        """Return whether the viewer had seen the end of the run before, and nothing has changed.

        This is known once the watch is open. The end is returned again.
        """
        return self._reader is not None and self._reader.is_final

    def _started(self) -> WatchReader:
        """Return the reader, which starts with the first call, and again after a failure."""
        if self._reader is None:
            found: asyncio.Queue[WatchEvent | None] = asyncio.Queue(EVENTS_MAX)
            self._reader = WatchReader(self._transport, self._id, self._path, self.cursor, found)
            self._task = asyncio.ensure_future(self._reader.read())
        return self._reader

    def _handed_out(self, event: WatchEvent | None) -> WatchEvent:
        if event is None:
            assert self._reader is not None
            assert self._reader.failure is not None
            self._fail(self._reader.failure)
        self.cursor = event.cursor
        self.ended = isinstance(event, EndEvent)
        return event

    def _fail(self, failure: Exception) -> NoReturn:
        self._reader = None
        raise failure

    async def _stop_at_end(self) -> None:
        if self.ended:
            await self._stop()

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    def _close(self) -> None:
        """Close the watch from any thread."""
        self.ended = True
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)
