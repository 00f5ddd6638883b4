"""Keep the pages that viewers behind their window have read last, for all of them together."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from outlast.engine.watching.stream_reader import ReadChunk

CHUNKS_MAX = 64
"""The most chunks that are kept. Joined chunks have up to 64,000 characters."""

Generation = tuple[int, str, int]


class _Cached(NamedTuple):
    stream: str
    generation: Generation
    chunk: ReadChunk


class PageCache:
    """Chunks that were read lately. The oldest ones are dropped first."""

    def __init__(self) -> None:
        self._chunks: deque[_Cached] = deque(maxlen=CHUNKS_MAX)

    def add(self, stream: str, generation: Generation, chunks: list[ReadChunk]) -> None:
        # The first chunks of a page are used first: drop them last.
        self._chunks.extend(_Cached(stream, generation, chunk) for chunk in reversed(chunks))

    def find(self, stream: str, generation: Generation, position: int) -> ReadChunk | None:
        """Return the chunk with the value at this position, if it is there."""
        for cached in reversed(self._chunks):
            chunk: ReadChunk = cached.chunk
            if (
                chunk.first <= position < chunk.first + len(chunk.values)
                and cached.generation == generation
                and cached.stream == stream
            ):
                return chunk
        return None
