"""Follow one stream of one run, for all its viewers in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from enum import Enum

from outlast.engine.watching.cursor import StreamCursor, origin_of
from outlast.engine.watching.events import DataEvent, WatchEvent
from outlast.engine.watching.page_cache import Generation, PageCache
from outlast.engine.watching.stream_reader import (
    StreamQuery,
    StreamReading,
    events_of,
    read_stream,
)
from outlast.engine.watching.stream_window import StreamWindow
from outlast.errors import UnknownRun
from outlast.store.protocol import Store

PAGE_CHUNKS, PAGE_CHUNKS_MAX = 16, 1000
"""The number of chunks of the first page, and the most of any page."""
PAGE_CHARACTERS = 131_072
"""The size that pages should have: later pages have more or fewer chunks."""


class Found(Enum):
    """What a viewer gets instead of events."""

    NOTHING = "it has seen everything so far"
    OLDER = "what follows is older than the window: it must be read from the store"


class StreamFollower:
    """The newest state of one stream, as of the last read.

    It exists as long as a viewer refers to it.
    """

    def __init__(self, id: str, stream: str, begin: StreamCursor) -> None:
        """`begin` is the cursor of the first viewer: older values are not kept."""
        self.id, self.stream = id, stream
        self.origin = origin_of(id, stream)
        self.waiting = 0
        """How many viewers wait. Without any, nothing is read."""
        self.round = 0
        """The number of the last round of reads that this follower was part of."""
        self.failure: BaseException | None = None
        """Why it follows nothing any more."""
        self._opening = 0
        """How many of the viewers wait for a round of reads, even if it finds nothing new."""
        self._changed = asyncio.Event()
        """Set and cleared at once. It wakes the viewers."""
        self._begin = begin
        self._reading: StreamReading | None = None
        self._window = StreamWindow(begin.position)
        self._limit = PAGE_CHUNKS

    # -- reading

    def read(self, store: Store) -> StreamReading | None:
        """Read what follows the window. Called in a thread, while nothing changes this."""
        known = self._reading or self._begin
        after = self._window.stop
        return read_stream(
            store,
            StreamQuery(
                self.id, self.stream, self.origin, known.run, known.server, after, self._limit
            ),
        )

    def apply(self, reading: StreamReading | None, round: int) -> None:
        """Take over what was read, and wake the viewers."""
        self.round = round
        if reading is None:
            self.fail(UnknownRun(self.id))
            return
        before, self._reading = self._reading, reading
        chunks = reading.chunks
        is_same = before is not None and before.generation == reading.generation
        if not is_same:
            self._window = StreamWindow(chunks[0].first if chunks else reading.stop)
        window, head = self._window, self._head(reading)
        for chunk in chunks:
            window.append(events_of(chunk, head, window.stop), chunk.size)
        self._adapt(sum(chunk.size for chunk in chunks), len(chunks))
        has_news = bool(chunks) or before is None or before.end_mark != reading.end_mark
        if has_news or not is_same or self._opening:
            self.wake()

    def _head(self, reading: StreamReading) -> str:
        return f"{self.origin}.{reading.run}.{reading.server}."

    def _adapt(self, size: int, chunks: int) -> None:
        """Adapt the number of chunks per page to their size."""
        if size > PAGE_CHARACTERS:
            self._limit = max(1, chunks * PAGE_CHARACTERS // size)
        elif chunks >= self._limit:
            self._limit = min(PAGE_CHUNKS_MAX, self._limit * 4)

    @property
    def is_behind(self) -> bool:
        """Return whether the store has more than the last page."""
        reading = self._reading
        return reading is not None and self._window.stop < reading.stop

    def fail(self, error: BaseException) -> None:
        """Raise this error in every viewer."""
        self.failure = error
        self.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed.clear()

    # -- for viewers

    async def wait(self, *, opening: bool) -> None:
        """Wait until there is something new, or with `opening` until the store was read."""
        self.waiting += 1
        self._opening += opening
        try:
            await self._changed.wait()
        finally:
            self.waiting -= 1
            self._opening -= opening

    @property
    def beginning(self) -> StreamCursor:
        """Return the cursor of a viewer that has seen nothing of this generation."""
        return StreamCursor(*self._known.generation)

    @property
    def generation(self) -> Generation:
        return self._known.generation

    @property
    def _known(self) -> StreamReading:
        assert self._reading is not None
        return self._reading

    def holds(self, cursor: StreamCursor) -> bool:
        """Return whether everything that a viewer with this cursor has seen still holds.

        The last read must have begun after the viewer got its cursor.
        """
        reading = self._known
        return (
            cursor.run == reading.run
            and cursor.server == reading.server
            and reading.start <= cursor.position <= reading.stop
            and (not cursor.end or cursor.end == reading.end_mark)
        )

    def after(
        self, cursor: StreamCursor, limit: int, pages: PageCache
    ) -> tuple[Sequence[WatchEvent], StreamCursor] | Found:
        """Return what follows a cursor that holds, and the cursor after it.

        There are at most `limit` events.
        """
        reading, window, position = self._known, self._window, cursor.position
        events: Sequence[DataEvent]
        if position >= window.first:
            events = window.since(position, limit)
        else:
            chunk = pages.find(self.stream, reading.generation, position)
            if chunk is None:
                return Found.OLDER
            events = events_of(chunk, self._head(reading), position, limit)
        if events:
            following = position + len(events)
            return [_own(event) for event in events], cursor._replace(position=following)
        if reading.end is not None:
            return (reading.end,), cursor._replace(end=reading.end_mark)
        return Found.NOTHING

    def is_at_end(self, cursor: StreamCursor) -> bool:
        """Return whether a viewer with this cursor has seen everything, also the end."""
        return bool(cursor.end) and self.holds(cursor) and self._known.end is not None

    def older(self, cursor: StreamCursor) -> StreamQuery:
        """Return the query of a page for a viewer that is older than the window."""
        return StreamQuery(
            self.id, self.stream, self.origin, cursor.run, cursor.server, cursor.position,
            self._limit,
        )  # fmt: skip


def _own(event: DataEvent) -> DataEvent:
    """Return an event that its viewer may keep: other viewers share the rest."""
    if isinstance(event.value, (dict, list)):
        return DataEvent(event.cursor, deepcopy(event.value))
    return event
