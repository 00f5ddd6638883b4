"""Keep the pages that viewers behind their window have read last, for all of them together."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from outlast.engine.watching.follower import Chunk, Generation

CHUNKS_MAX = 64
"""The most chunks that are kept. Joined chunks have up to 64,000 characters."""


class _Cached(NamedTuple):
    origin: str
    generation: Generation
    chunk: Chunk


class PageCache:
    """Chunks that were read lately. The oldest ones are dropped first."""

    def __init__(self) -> None:
        self._chunks: deque[_Cached] = deque(maxlen=CHUNKS_MAX)

    def add(self, origin: str, generation: Generation, chunks: list[Chunk]) -> None:
        # The first chunks of a page are used first: drop them last.
        self._chunks.extend(_Cached(origin, generation, chunk) for chunk in reversed(chunks))

    def find(self, origin: str, generation: Generation, position: int) -> Chunk | None:
        """Return the chunk with the value at this position, if it is there."""
        for cached in reversed(self._chunks):
            chunk: Chunk = cached.chunk
            if (
                chunk.first <= position < chunk.stop
                and cached.generation == generation
                and cached.origin == origin
            ):
                return chunk
        return None
