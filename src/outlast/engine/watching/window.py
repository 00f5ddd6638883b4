"""Keep the newest values of one generation, shared by all viewers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

WINDOW_CHARACTERS = 262_144
"""The most characters of JSON that a window keeps. One chunk may be longer."""


class Window(Generic[T]):
    """Consecutive values, the oldest at position `first`."""

    __slots__ = ("_chunks", "_size", "_values", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self._values: list[T] = []
        self._chunks: deque[tuple[int, int]] = deque()
        """The number of values and the number of characters of each chunk."""
        self._size = 0

    @property
    def stop(self) -> int:
        """Return the position of the next value."""
        return self.first + len(self._values)

    def append(self, values: Iterable[T], size: int) -> None:
        """Append the values of a chunk with `size` characters, and drop the oldest chunks."""
        before = len(self._values)
        self._values.extend(values)
        self._chunks.append((len(self._values) - before, size))
        self._size += size
        dropped = 0
        while self._size > WINDOW_CHARACTERS and len(self._chunks) > 1:
            count, characters = self._chunks.popleft()
            self._size -= characters
            dropped += count
        del self._values[:dropped]
        self.first += dropped

    def since(self, position: int, limit: int) -> Sequence[T]:
        """Return the values from a position on that is within the window, `limit` at most."""
        start = position - self.first
        return self._values[start : start + limit]
