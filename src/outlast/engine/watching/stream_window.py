"""Keep the newest values of one generation of a stream, shared by all its viewers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from outlast.engine.watching.events import DataEvent

WINDOW_CHARACTERS = 262_144
"""The most characters of JSON that a window keeps. One chunk may be longer."""


class StreamWindow:
    """The events of consecutive values, the oldest at position `first`."""

    __slots__ = ("_chunks", "_events", "_size", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self._events: list[DataEvent] = []
        self._chunks: deque[tuple[int, int]] = deque()
        """The number of events and the number of characters of each chunk."""
        self._size = 0

    @property
    def stop(self) -> int:
        """Return the position of the next value."""
        return self.first + len(self._events)

    def append(self, events: Iterable[DataEvent], size: int) -> None:
        """Append the events of a chunk with `size` characters, and drop the oldest chunks."""
        before = len(self._events)
        self._events.extend(events)
        self._chunks.append((len(self._events) - before, size))
        self._size += size
        dropped = 0
        while self._size > WINDOW_CHARACTERS and len(self._chunks) > 1:
            count, characters = self._chunks.popleft()
            self._size -= characters
            dropped += count
        del self._events[:dropped]
        self.first += dropped

    def since(self, position: int, limit: int) -> Sequence[DataEvent]:
        """Return the events from a position on that is within the window, `limit` at most."""
        start = position - self.first
        return self._events[start : start + limit]
