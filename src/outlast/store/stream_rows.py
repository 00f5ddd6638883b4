"""Define what a store returns of the streams of a run. `Publish` says what a stream is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class StreamChunk(NamedTuple):
    """Values of a stream that follow one another."""

    first: int
    """The position of the first one."""
    values: str
    """A JSON array, never empty."""


class StreamRow(NamedTuple):
    """A stream, and some of its values."""

    start: int
    """The position at which its current generation begins. What a reader saw below it no longer
    holds.
    """
    stop: int
    """The position of the next value. It equals `start` if there are no values."""
    server: str
    """Which server has answered. Positions that another one gave may belong to other values.

    It changes where acknowledged values may have been lost: with each promotion of a replica on
    Postgres, and with each start of the server on Redis. It is empty on SQLite and files.
    """
    chunks: list[StreamChunk]


class StreamRange(NamedTuple):
    """A part of a stream to read."""

    run: int
    stream: str
    after: int = 0
    limit: int = 1000
    """The most chunks."""


class StreamInfo(NamedTuple):
    """A stream without its values."""

    name: str
    start: int
    stop: int


class PartInfo(NamedTuple):
    """What one writer has published to a stream, without its values."""

    stream: str
    writer: str
    length: int


class PartRow(NamedTuple):
    """What one writer has published to a stream."""

    length: int
    values: str
    """A JSON array."""


def joined(chunks: Iterable[str]) -> str:
    """Return one JSON array with the values of all these, of which none is empty."""
    return f"[{','.join([chunk[1:-1] for chunk in chunks])}]"


def stream_of(rows: Sequence[Sequence[Any]], server: str = "") -> StreamRow | None:
    """Build a stream from rows of (start, stop, first, values), ordered by `first`.

    A stream without values from the asked position on has one row, in which these two are None.
    """
    if not rows:
        return None
    start, stop = rows[0][:2]
    chunks = [StreamChunk(first, values) for _, _, first, values in rows if first is not None]
    return StreamRow(start, stop, server, chunks)


def part_of(rows: Sequence[Sequence[Any]]) -> PartRow | None:
    """Build a part from rows of (length, values), in order. An empty part has one row with None."""
    if not rows:
        return None
    return PartRow(rows[0][0], joined(values for _, values in rows if values is not None))
