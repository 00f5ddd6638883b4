"""Follow one stream of one run, for all its viewers in this process."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from outlast.engine.watching.cursor import StreamCursor, origin_of
from outlast.engine.watching.events import DataEvent, WatchEvent
from outlast.engine.watching.follower import Chunk, Follower, Found, Generation, Pages
from outlast.engine.watching.stream_reader import (
    StreamQuery,
    StreamReading,
    continued,
    events_of,
    read_page,
    read_stream,
)
from outlast.engine.watching.window import Window
from outlast.store.protocol import Store
from outlast.store.stream_rows import StreamRange, StreamRow

PAGE_CHUNKS, PAGE_CHUNKS_MAX = 16, 1000
"""The number of chunks of the first page, and the most of any page."""
PAGE_CHARACTERS = 131_072
"""The size that pages should have: later pages have more or fewer chunks."""


class StreamFollower(Follower[StreamCursor, StreamReading]):
    """The newest values of one stream."""

    def __init__(self, id: str, stream: str, begin: StreamCursor, *, poll: float) -> None:
        """`begin` is the cursor of the first viewer: older values are not kept."""
        super().__init__(id, origin_of(id, stream), pause=0.0, poll=poll)
        self._stream = stream
        self._begin = begin
        self._window: Window[DataEvent] = Window(begin.position)
        self._limit = PAGE_CHUNKS

    # -- reading

    def read(self, store: Store) -> StreamReading | None:
        known = self._reading
        if known is None:
            return read_stream(store, self._query(self._begin, self._window.stop))
        if not self.checks_run and not known.end_mark:
            reading = self.continued(store.stream(*self.following), store.place)
            if reading is not None:
                return reading
        return read_stream(store, self._query(known, self._window.stop))

    @property
    def only_follows(self) -> bool:
        """Return whether it needs only what follows, if the run has not ended since."""
        known = self._reading
        return known is not None and not known.end_mark and not self.is_behind

    @property
    def following(self) -> StreamRange:
        """Return the range that follows what is known."""
        return StreamRange(self.known.run, self._stream, self._window.stop, self._limit)

    def continued(self, stream: StreamRow | None, place: str) -> StreamReading | None:
        """Return the reading with this stream, which follows it. None: a whole one is needed."""
        return continued(self.known, stream, self._window.stop, place)

    def read_page(
        self, store: Store, cursor: StreamCursor
    ) -> tuple[Generation, list[Chunk]] | None:
        return read_page(store, self._query(cursor, cursor.position))

    def _query(self, known: StreamCursor | StreamReading, after: int) -> StreamQuery:
        return StreamQuery(
            self.id, self._stream, self.origin, known.run, known.server, after, self._limit
        )

    def take(self, reading: StreamReading, before: StreamReading | None) -> bool:
        chunks = reading.chunks
        is_same = before is not None and before.generation == reading.generation
        if not is_same:
            self._window = Window(chunks[0].first if chunks else reading.stop)
        window, head = self._window, self._head(reading)
        for chunk in chunks:
            window.append(events_of(chunk, head, window.stop), chunk.size)
        self._adapt(sum(chunk.size for chunk in chunks), len(chunks))
        has_end = before is not None and before.end_mark == reading.end_mark
        return bool(chunks) or not is_same or not has_end

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
        reading = self._reading
        return reading is not None and self._window.stop < reading.stop

    # -- for viewers

    @property
    def beginning(self) -> StreamCursor:
        return StreamCursor(*self.known.generation)

    def holds(self, cursor: StreamCursor) -> bool:
        reading = self.known
        return (
            cursor.run == reading.run
            and cursor.server == reading.server
            and reading.start <= cursor.position <= reading.stop
            and (not cursor.end or cursor.end == reading.end_mark)
        )

    def after(
        self, cursor: StreamCursor, limit: int, pages: Pages
    ) -> tuple[Sequence[WatchEvent], StreamCursor] | Found:
        reading, window, position = self.known, self._window, cursor.position
        events: Sequence[DataEvent]
        if position >= window.first:
            events = window.since(position, limit)
        else:
            chunk = pages.find(self.origin, reading.generation, position)
            if chunk is None:
                return Found.OLDER
            # The page may have been read later than the bounds.
            limit = min(limit, reading.stop - position)
            events = events_of(chunk, self._head(reading), position, limit)
        if events:
            following = position + len(events)
            return [_own(event) for event in events], cursor._replace(position=following)
        if reading.end is not None:
            return (reading.end,), cursor._replace(end=reading.end_mark)
        return Found.NOTHING

    def is_at_end(self, cursor: StreamCursor) -> bool:
        return bool(cursor.end) and self.holds(cursor) and self.known.end is not None


def _own(event: DataEvent) -> DataEvent:
    """Return an event that its viewer may keep: other viewers share the rest."""
    if isinstance(event.value, (dict, list)):
        return DataEvent(event.cursor, deepcopy(event.value))
    return event
