"""Read a stream and the state of its run from the store. Called in threads."""

from __future__ import annotations

import json
from typing import NamedTuple

from outlast.codec.documents import error_document, value_of
from outlast.engine.watching.cursor import StreamCursor, end_mark, server_mark
from outlast.engine.watching.events import DataEvent, EndEvent
from outlast.engine.watching.follower import Chunk, Generation
from outlast.errors import StoreBroken
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, RunRow
from outlast.store.stream_rows import StreamChunk, StreamRow

NO_STREAM = StreamRow(0, 0, "", [])
"""A stream to which nothing was published."""


class StreamQuery(NamedTuple):
    """What a follower asks of the store."""

    id: str
    stream: str
    origin: str
    run: int
    """The number of the run that `after` belongs to, or 0."""
    server: str
    """The mark of the server that `after` belongs to."""
    after: int
    limit: int
    """The most chunks to return."""


class StreamReading(NamedTuple):
    """A stream and the state of its run, as of one moment."""

    run: int
    server: str
    start: int
    stop: int
    chunks: list[Chunk]
    end: EndEvent | None
    """The run's end, if the run has ended and nothing follows these chunks."""
    end_mark: str

    @property
    def generation(self) -> Generation:
        return self.run, self.server, self.start


def read_stream(store: Store, query: StreamQuery) -> StreamReading | None:
    """Return the stream from `query.after` on, or None if the run does not exist.

    The run's row is read before and after the stream. If both times it had ended in the same way,
    the stream is whole: a run publishes nothing after its end, and a retry changes the row.
    """
    while True:
        row = store.run(query.id)
        if row is None:
            return None
        stream = _stream(store, query, row.pk)
        chunks = [_decoded(chunk, store.place) for chunk in stream.chunks]
        mark = end_mark(row) if row.status in ENDED else ""
        end = None
        if mark and _reaches_stop(chunks, stream):
            again = store.run(query.id)
            if again is None or again.pk != row.pk or end_mark(again) != mark:
                continue
            cursor = StreamCursor(row.pk, server_mark(stream.server), stream.stop, mark)
            end = end_event(row, cursor.text(query.origin))
        server = server_mark(stream.server)
        return StreamReading(row.pk, server, stream.start, stream.stop, chunks, end, mark)


def continued(
    known: StreamReading, stream: StreamRow | None, after: int, place: str
) -> StreamReading | None:
    """Return the next reading of a run that had not ended, without reading the run itself.

    Return None if that is not possible: the stream is gone, or another server answers.
    """
    if stream is None:
        return None if known.stop else known._replace(chunks=[])
    if server_mark(stream.server) != known.server or stream.stop < after:
        return None
    chunks = [_decoded(chunk, place) for chunk in stream.chunks]
    return known._replace(start=stream.start, stop=stream.stop, chunks=chunks)


def _stream(store: Store, query: StreamQuery, run: int) -> StreamRow:
    after = query.after if run == query.run else 0
    stream = store.stream(run, query.stream, after, query.limit) or NO_STREAM
    if after and (server_mark(stream.server) != query.server or stream.stop < after):
        # The position is not one of this stream.
        stream = store.stream(run, query.stream, 0, query.limit) or NO_STREAM
    return stream


def _reaches_stop(chunks: list[Chunk], stream: StreamRow) -> bool:
    """Return whether nothing follows these chunks. Without any, nothing follows what is known."""
    return not chunks or chunks[-1].stop == stream.stop


def read_page(store: Store, query: StreamQuery) -> tuple[Generation, list[Chunk]] | None:
    """Return values from `query.after` on, and the generation that they belong to."""
    stream = store.stream(query.run, query.stream, query.after, query.limit)
    if stream is None:
        return None
    chunks = [_decoded(chunk, store.place) for chunk in stream.chunks]
    return (query.run, server_mark(stream.server), stream.start), chunks


def _decoded(chunk: StreamChunk, place: str) -> Chunk:
    try:
        return Chunk(chunk.first, json.loads(chunk.values), len(chunk.values))
    except ValueError as error:
        raise StoreBroken(f"{place}: values of a stream are damaged: {error}") from error


def end_event(row: RunRow, cursor: str) -> EndEvent:
    return EndEvent(cursor, row.status, value_of(row.value), error_document(row.error), row.reason)


def events_of(chunk: Chunk, head: str, after: int, limit: int | None = None) -> list[DataEvent]:
    """Return the events of a chunk's values from position `after` on, `limit` at most.

    `head` is what all cursors of this stream begin with.
    """
    skipped = max(0, after - chunk.first)
    values = chunk.values[skipped : None if limit is None else skipped + limit]
    following = chunk.first + skipped + 1
    return [
        DataEvent(f"{head}{position}", value) for position, value in enumerate(values, following)
    ]
