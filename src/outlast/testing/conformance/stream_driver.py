"""Provide helpers to publish and to read streams in their contracts."""

from __future__ import annotations

import json
from typing import Any

from outlast.store.commands import Publish
from outlast.store.rows import RunRow
from outlast.store.stream_rows import StreamRow
from outlast.testing.conformance.harness import StoreDriver

STREAM = "answer"


def publish(row: RunRow, text: str = "", after: int = 0, **fields: Any) -> Publish:
    """Return a command that publishes each letter of `text` as one value."""
    told: dict[str, Any] = {"stream": STREAM, "writer": "step#1", "attempt": 1} | fields
    return Publish(row.pk, row.fence, after=after, values=tuple(map(json.dumps, text)), **told)


def found(driver: StoreDriver, row: RunRow, after: int = 0, **fields: Any) -> StreamRow:
    stream = driver.store.stream(row.pk, STREAM, after, **fields)
    assert stream is not None
    return stream


def positions(stream: StreamRow) -> dict[int, str]:
    """Return the values of a stream by position, and check that no two have the same one."""
    values: dict[int, str] = {}
    for chunk in stream.chunks:
        for position, value in enumerate(json.loads(chunk.values), chunk.first):
            assert position not in values
            assert stream.start <= position < stream.stop
            values[position] = value
    return values


def text(driver: StoreDriver, row: RunRow) -> str:
    """Return all values of the stream, and check that they are where its bounds say."""
    stream = found(driver, row)
    values = positions(stream)
    assert list(values) == list(range(stream.start, stream.stop))
    return "".join(values.values())


class Viewer:
    """Follow a stream as a reader does that keeps nothing but its position."""

    def __init__(self) -> None:
        self.seen = ""
        self.resets = 0
        self._position: int | None = None

    def read(self, driver: StoreDriver, row: RunRow, limit: int = 1000) -> None:
        """Read one page."""
        stream = driver.store.stream(row.pk, STREAM, self._position or 0, limit)
        if stream is None:
            return
        position = self._position
        if position is None or position < stream.start:
            self.resets += position is not None
            self.seen, position = "", stream.start
        values = positions(stream)
        while position in values:
            self.seen += values[position]
            position += 1
        self._position = position
