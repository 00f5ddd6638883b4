"""Follow a run as a whole: its journal, its executions and its state."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any, NamedTuple

from outlast.codec.text import iso
from outlast.engine.documents import entry_document, run_document
from outlast.engine.executing_steps import (
    ENDING_KINDS,
    ExecutingStep,
    executing_document,
    executing_steps,
    not_ended,
)
from outlast.engine.watching.cursor import RunCursor, digest, end_mark, origin_of, server_mark
from outlast.engine.watching.events import DataEvent, EndEvent, WatchEvent
from outlast.engine.watching.follower import Chunk, Follower, Found, Generation, Pages
from outlast.engine.watching.stream_reader import end_event
from outlast.engine.watching.window import Window
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, Entry, ExecutionRow, RunRow

PAUSE_SECONDS, POLL_SECONDS = 0.1, 0.5
"""The bounds on the time between two reads. A store does not notify of each journal entry."""
PAGE_ENTRIES = 256


class RunReading(NamedTuple):
    """A run, as of one moment."""

    run: int
    server: str
    after: int
    """The number of the entry after which the chunks begin."""
    chunks: list[Chunk]
    """The documents of the entries after those that the follower has. Positions are their numbers,
    beginning at 0.
    """
    is_behind: bool
    """Whether there may be more entries."""
    executions: list[ExecutionRow]
    state: dict[str, Any]
    """The document of the run."""
    mark: str
    """The mark of this state."""
    executing: tuple[ExecutingStep, ...]
    """The steps that execute, as far as they are known."""
    executing_mark: str
    end: EndEvent | None
    end_mark: str

    @property
    def generation(self) -> Generation:
        return self.run, self.server, 0


class RunFollower(Follower[RunCursor, RunReading]):
    """The newest entries of one run, its executions and its state."""

    def __init__(self, id: str, begin: RunCursor, *, poll: float) -> None:
        origin = origin_of(id, None)
        super().__init__(id, origin, pause=PAUSE_SECONDS, poll=min(poll, POLL_SECONDS))
        self._begin = begin
        self._window: Window[dict[str, Any]] = Window(begin.position)
        self._ended: deque[tuple[str, float]] = deque(maxlen=PAGE_ENTRIES)
        """The keys and times of the newest entries that end an attempt."""

    # -- reading

    def read(self, store: Store) -> RunReading | None:
        known = self._reading or self._begin
        while True:
            server = store.server()
            row = store.run(self.id)
            if row is None:
                return None
            is_same = row.pk == known.run and server_mark(server) == known.server
            after = self._window.stop if is_same else 0
            chunks = _chunks(store.journal(row.pk, after, PAGE_ENTRIES))
            if after and not chunks and store.last_seq(row.pk) < after:
                # The position is not one of this run.
                after, chunks = 0, _chunks(store.journal(row.pk, 0, PAGE_ENTRIES))
            executions = store.executions(row.pk)
            steps = executing_steps(store, row)
            executing = not_ended(steps, dict([*self._ended, *_ends_in(chunks)])) if steps else ()
            again = store.run(self.id)
            if store.server() != server or again is None or _differs(row, again):
                continue
            return _reading_of(
                row, store.now(), server_mark(server), after, chunks, executions, executing
            )

    def read_page(self, store: Store, cursor: RunCursor) -> tuple[Generation, list[Chunk]] | None:
        server = store.server()
        chunks = _chunks(store.journal(cursor.run, cursor.position, PAGE_ENTRIES))
        if not chunks or store.server() != server:
            return None
        return (cursor.run, server_mark(server), 0), chunks

    def take(self, reading: RunReading, before: RunReading | None) -> bool:
        chunks = reading.chunks
        is_same = before is not None and before.generation == reading.generation
        if not is_same or reading.after != self._window.stop:
            self._window = Window(reading.after)
        for chunk in chunks:
            self._window.append(chunk.values, chunk.size)
        self._ended.extend(_ends_in(chunks))
        return (
            not is_same
            or bool(chunks)
            or before is None
            or before.mark != reading.mark
            or before.end_mark != reading.end_mark
            or before.executions != reading.executions
            or before.executing_mark != reading.executing_mark
        )

    @property
    def is_behind(self) -> bool:
        return self._reading is not None and self._reading.is_behind

    # -- for viewers

    @property
    def beginning(self) -> RunCursor:
        return RunCursor(self.known.run, self.known.server)

    def holds(self, cursor: RunCursor) -> bool:
        reading = self.known
        return (
            cursor.run == reading.run
            and cursor.server == reading.server
            and (cursor.position <= self._window.stop or reading.is_behind)
            and cursor.execution // 2 <= max((one.fence for one in reading.executions), default=0)
            and (not cursor.end or cursor.end == reading.end_mark)
        )

    def after(
        self, cursor: RunCursor, limit: int, pages: Pages
    ) -> tuple[Sequence[WatchEvent], RunCursor] | Found:
        reading = self.known
        if not cursor.state:
            return self._state(cursor)
        found = self._entries(cursor, limit, pages)
        if isinstance(found, Found):
            return found
        pending = next(_changes(reading.executions, cursor.execution), None)
        if pending is not None:
            mark, at, value = pending
            found = [entry for entry in found if _precedes(entry, at, is_end=bool(mark % 2))]
            if not found:
                cursor = cursor._replace(execution=mark)
                return (DataEvent(cursor.text(self.origin), value),), cursor
        if found:
            events = []
            for entry in found:
                cursor = cursor._replace(position=cursor.position + 1)
                events.append(DataEvent(cursor.text(self.origin), deepcopy(entry)))
            return events, cursor
        if cursor.state != reading.mark:
            return self._state(cursor)
        if cursor.executing != reading.executing_mark and reading.end is None:
            cursor = cursor._replace(executing=reading.executing_mark)
            steps = [executing_document(one) for one in reading.executing]
            value = {"type": "executing", "steps": steps}
            return (DataEvent(cursor.text(self.origin), value),), cursor
        if reading.end is not None:
            end, cursor = reading.end, cursor._replace(end=reading.end_mark)
            fields = (end.status, end.result, end.error, end.reason)
            return (EndEvent(cursor.text(self.origin), *fields),), cursor
        return Found.NOTHING

    def _state(self, cursor: RunCursor) -> tuple[Sequence[WatchEvent], RunCursor]:
        reading = self.known
        cursor = cursor._replace(state=reading.mark)
        value = {"type": "status", "run": deepcopy(reading.state)}
        return (DataEvent(cursor.text(self.origin), value),), cursor

    def _entries(
        self, cursor: RunCursor, limit: int, pages: Pages
    ) -> Sequence[dict[str, Any]] | Found:
        """Return the documents of the entries that follow a cursor."""
        position = cursor.position
        if position >= self._window.first:
            return self._window.since(position, limit)
        chunk = pages.find(self.origin, self.known.generation, position)
        if chunk is None:
            return Found.OLDER
        start = position - chunk.first
        limit = min(limit, self._window.stop - position)
        return chunk.values[start : start + limit]

    def is_at_end(self, cursor: RunCursor) -> bool:
        return bool(cursor.end) and self.holds(cursor) and self.known.end is not None


def _reading_of(
    row: RunRow,
    now: float,
    server: str,
    after: int,
    chunks: list[Chunk],
    executions: list[ExecutionRow],
    executing: tuple[ExecutingStep, ...],
) -> RunReading:
    is_behind = bool(chunks) and len(chunks[0].values) == PAGE_ENTRIES
    state = run_document(row, now)
    mark = digest(json.dumps({**state, "delayed": None}, sort_keys=True))
    ended = end_mark(row) if row.status in ENDED else ""
    end = end_event(row, "") if ended and not is_behind else None
    steps = [(row.fence, one.key, one.attempt) for one in executing]
    return RunReading(
        row.pk,
        server,
        after,
        chunks,
        is_behind,
        executions,
        state,
        mark,
        executing,
        digest(json.dumps(steps)) if steps else "",
        end,
        ended,
    )


def _differs(row: RunRow, again: RunRow) -> bool:
    """Return whether a run has begun or ended an execution between two reads."""
    return (row.pk, row.fence, row.status, row.ended) != (
        again.pk, again.fence, again.status, again.ended,
    )  # fmt: skip


def _chunks(entries: list[Entry]) -> list[Chunk]:
    """Return a chunk with the documents of these entries, if there are any."""
    if not entries:
        return []
    values, size = [], 0
    for entry in entries:
        document = entry_document(entry, void=False)
        # A retry may make it void later. Its own entry says so.
        del document["void"]
        values.append({"type": entry.kind, "entry": document})
        size += 200 + sum(len(text or "") for text in (entry.args, entry.value, entry.error))
    return [Chunk(entries[0].seq - 1, values, size)]


def _ends_in(chunks: list[Chunk]) -> list[tuple[str, float]]:
    """Return when attempts of steps ended, each with the key of its step."""
    entries = [value["entry"] for chunk in chunks for value in chunk.values]
    return [
        (entry["key"], datetime.fromisoformat(entry["at"]).timestamp())
        for entry in entries
        if entry["kind"] in ENDING_KINDS and entry["at"]
    ]


def _precedes(entry: dict[str, Any], at: float, *, is_end: bool) -> bool:
    """Return whether an entry was recorded before an execution began, or until it ended."""
    recorded, limit = entry["entry"]["at"] or "", iso(at) or ""
    return bool(recorded <= limit if is_end else recorded < limit)


def _changes(
    executions: Sequence[ExecutionRow], seen: int
) -> Iterator[tuple[int, float, dict[str, Any]]]:
    """Yield the beginnings and ends of executions after those seen: mark, time and document."""
    for one in executions:
        if 2 * one.fence > seen:
            yield 2 * one.fence, one.began, _execution(one, "execution_began")
        if one.ended is not None and 2 * one.fence + 1 > seen:
            yield 2 * one.fence + 1, one.ended, _execution(one, "execution_ended")


def _execution(one: ExecutionRow, kind: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": kind,
        "fence": one.fence,
        "worker": one.worker,
        "host": one.host,
        "pid": one.pid,
        "began": iso(one.began),
    }
    if kind == "execution_ended":
        document |= {"ended": iso(one.ended), "status": one.status, "reason": one.reason}
    return document
