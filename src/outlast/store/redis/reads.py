"""Read from a Redis store, on a connection that nothing else uses but liveness notes.

Each read is one call of one script, or a series of pages.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from outlast.errors import StoreUnavailable
from outlast.store.deadline import CALL_SECONDS, acquired
from outlast.store.protocol import BadValue, claimable_of
from outlast.store.redis import decode, scripts
from outlast.store.redis.address import Address
from outlast.store.redis.connection import Lost, RedisConnection
from outlast.store.redis.dispatch import INTEGER_MAX, integers
from outlast.store.redis.failures import away
from outlast.store.redis.liveness import MissedHeartbeats
from outlast.store.redis.session_reads import SessionReads
from outlast.store.rows import (
    DELAYED,
    ENDED,
    Claimable,
    DrainRow,
    EndCount,
    Entry,
    ExecutionRow,
    Message,
    QueueRow,
    RunQuery,
    RunRow,
    WorkerRow,
)
from outlast.store.session_rows import NameRange
from outlast.store.stream_rows import (
    PartInfo,
    PartRow,
    StreamChunk,
    StreamInfo,
    StreamRange,
    StreamRow,
    joined,
)

PAGE = 1_000
STREAMS_AT_ONCE, RUNS_AT_ONCE = 200, 1_000
"""How many streams, and how many runs, one call of the read script looks at."""
"""The most rows that one call looks at."""
PAGE_BYTES = 4_000_000
STATUSES = ("queued", "running", "waiting", "parked", *sorted(ENDED))


class Reads(SessionReads):
    """The reads of a Redis store, and its clock."""

    call_timeout = CALL_SECONDS

    def __init__(
        self, address: Address, clock: Callable[[], float] | None, missed: MissedHeartbeats
    ) -> None:
        self._address, self._clock, self._missed = address, clock, missed
        self.place = address.place
        self._reading = threading.Lock()
        self._reader = RedisConnection(address)
        self._opened = False
        self._offset = 0.0
        """The server's clock minus this process's monotonic clock."""

    def _check_open(self) -> None:
        if not self._opened:
            raise StoreUnavailable(
                f"{self.place}: the store is not open (closed, or inherited over a fork)."
            )

    def now(self) -> float:
        return self._clock() if self._clock is not None else time.monotonic() + self._offset

    def _set_clock(self, now: str) -> None:
        self._offset = float(now) - time.monotonic()

    def _header(self) -> dict[str, Any]:
        header: dict[str, Any] = {"db": str(self._address.db)}
        if self._clock is not None:
            header["now"] = self._clock()
        return header

    def _read(self, name: str, *arguments: str | int) -> Any:
        """Call the read script. Reads can be repeated, so a stale connection is replaced once."""
        try:
            sent = [str(argument).encode() for argument in arguments]
        except UnicodeEncodeError as error:
            raise BadValue(f"a text cannot be stored: {error}") from None
        with acquired(self._reading, self.call_timeout, self.place):
            self._check_open()
            script = scripts.read_script()
            for again in (False, True):
                stale = self._reader.is_open
                try:
                    header = json.dumps(self._header())
                    now, answer = self._reader.run(
                        script, self._address.prefix, header, name, *sent
                    )
                except Lost as error:
                    self._missed.forget()
                    if again or not stale:
                        raise away(error, self.place) from error
                else:
                    self._set_clock(now)
                    return answer
        raise AssertionError("unreachable")

    def run(self, id: str) -> RunRow | None:
        flat = self._read("run", id)
        return decode.run_row(flat) if flat else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        """Return runs, read in pages: the server serves other clients in between, however many runs
        there are.
        """
        rows: list[RunRow] = []
        before = query.before_pk
        pks = self._pks(query.prefix, before) if query.prefix else None
        asked = {name: value for name, value in query._asdict().items() if value is not None}
        del asked["statuses"]
        of = query.statuses or STATUSES
        if DELAYED in of:
            of = tuple(dict.fromkeys("queued" if status == DELAYED else status for status in of))
            asked["delayed"] = True
        while len(rows) < query.limit:
            page = {"of": of, "look": PAGE, "limit": min(query.limit - len(rows), PAGE)}
            if query.statuses:
                page["statuses"] = dict.fromkeys(
                    (one for one in query.statuses if one != DELAYED), True
                )
            if before is not None:
                page["before"] = before
            if pks is not None:
                page["pks"], pks = pks[:PAGE], pks[PAGE:]
            at, found = self._read("runs", json.dumps(asked | page, ensure_ascii=False))
            rows += map(decode.run_row, found)
            if pks is not None:
                if not pks:
                    break
            elif at is None:
                break
            else:
                before = int(at)
        return rows

    def _pks(self, prefix: str, before: int | None) -> list[int]:
        """Return the pks below `before` of the runs whose ids begin with `prefix`, newest first."""
        asked = NameRange.of(prefix)._asdict() | {"look": PAGE}
        if asked["high"] is None:
            del asked["high"]
        found: list[int] = []
        last: str | None = ""
        while last is not None:
            last, page = self._read("pks_with_prefix", json.dumps(asked, ensure_ascii=False))
            found += [int(number) for number in page if number is not None]
            asked |= {"low": last, "above": True}
        return sorted((pk for pk in found if before is None or pk < before), reverse=True)

    def ends(self, after: float, limit: int) -> list[EndCount]:
        return [
            EndCount(status, int(runs), int(deaths), int(interruptions), float(first))
            for status, runs, deaths, interruptions, first in self._read("ends", repr(after), limit)
        ]

    def journal(self, run: int, after: int = 0, limit: int = 10_000) -> list[Entry]:
        entries: list[Entry] = []
        run, after, limit = integers(run, after, limit)
        while len(entries) < limit:
            last = entries[-1].seq if entries else after
            page = decode.entries(
                self._read("journal", run, last, min(limit - len(entries), PAGE), PAGE_BYTES)
            )
            if not page:
                break
            entries += page
        return entries

    def last_seq(self, run: int) -> int:
        return int(self._read("last_seq", *integers(run)))

    def may_need_compensation(self, id: str) -> bool:
        return bool(self._read("may_need_compensation", id) == "1")

    def done(self, run: int, keys: Sequence[str]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for start in range(0, len(keys), PAGE):
            flat = self._read("done", *integers(run), *keys[start : start + PAGE])
            found |= {
                key: decode.entry(0, text).value
                for key, text in zip(flat[::2], flat[1::2], strict=True)
            }
        return found

    def done_count(self, run: int) -> int:
        return int(self._read("done_count", *integers(run)))

    def history(self, run: int) -> list[Entry]:
        if not self.done_count(run):
            return self.journal(run, limit=INTEGER_MAX)
        return sorted(decode.entries(self._read("history", *integers(run))))

    def executions(self, run: int) -> list[ExecutionRow]:
        return [decode.execution(run, text) for text in self._read("executions", *integers(run))]

    def messages(self, run: int, after: int = 0) -> list[Message]:
        texts = self._read("messages", *integers(run, after))
        return [decode.message(number, text) for number, text in enumerate(texts, after + 1)]

    def progress(self, run: int) -> dict[str, str]:
        return decode.progress(self._read("progress", *integers(run)))

    def stream(self, run: int, stream: str, after: int = 0, limit: int = 1000) -> StreamRow | None:
        run, after, limit = integers(run, after, limit)
        found = self._read("stream", run, stream, after, limit)
        return _stream(found[:-1], found[-1]) if found else None

    def many_streams(self, asked: Sequence[StreamRange]) -> list[StreamRow | None]:
        """Return several streams. The server serves other clients between two calls."""
        found: list[StreamRow | None] = []
        for part in _parts(asked, STREAMS_AT_ONCE):
            flat = [
                value
                for run, stream, after, limit in part
                for value in (*integers(run), stream, *integers(after, limit))
            ]
            server, rows = self._read("many_streams", *flat)
            found += [_stream(row, server) if row else None for row in rows]
        return found

    def unended(self, runs: Sequence[int]) -> set[int]:
        found: set[int] = set()
        for part in _parts(runs, RUNS_AT_ONCE):
            found.update(map(int, self._read("unended", *integers(*part))))
        return found

    def server(self) -> str:
        return str(self._read("server"))

    def streams(self, run: int) -> list[StreamInfo]:
        found = self._read("streams", *integers(run))
        return sorted(StreamInfo(name, int(start), int(stop)) for name, start, stop in found)

    def parts(self, run: int) -> list[PartInfo]:
        found = self._read("parts", *integers(run))
        return sorted(PartInfo(stream, writer, int(length)) for stream, writer, length in found)

    def part(self, run: int, stream: str, writer: str) -> PartRow | None:
        found = self._read("part", *integers(run), stream, writer)
        return PartRow(int(found[0]), joined(found[1])) if found else None

    def workers(self) -> list[WorkerRow]:
        rows = map(decode.worker_row, self._read("workers"))
        return sorted(rows, key=lambda row: (row.started, row.id))

    def asked(self, worker: str) -> str | None:
        why: str | None = self._read("asked", worker)
        return why

    def drains(self, limit: int = 20) -> list[DrainRow]:
        return (
            [decode.drain_row(found) for found in self._read("drains", *integers(limit))]
            if limit > 0
            else []
        )

    def durations(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
        found: dict[tuple[str, str], list[float]] = {}
        for start in range(0, len(pairs), PAGE):
            some = pairs[start : start + PAGE]
            lists = self._read("durations", *(name for pair in some for name in pair))
            for (workflow, step), texts in zip(some, lists, strict=True):
                found[workflow, step] = [float(text) for text in texts]
        return found

    def peek(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> Claimable:
        ready, suspect, text = self._read("peek", *dict.fromkeys(queues))
        due = None if text is None else float(text)
        return claimable_of(set(ready), set(suspect), due, self.now(), workflows)

    def queues(self) -> list[QueueRow]:
        return [decode.queue_row(found) for found in self._read("queues")]

    def depth(self, queue: str) -> int:
        return int(self._read("depth", queue))

    def held(self, worker: str) -> list[tuple[int, int, str]]:
        return [(int(run), int(fence), id) for run, fence, id in self._read("held", worker)]

    def cancels(self, worker: str) -> list[tuple[str, str]]:
        return [(id, why) for id, why in self._read("cancels", worker)]


def _stream(found: Sequence[Any], server: str) -> StreamRow:
    start, stop, flat = found
    chunks = [
        StreamChunk(int(first), values) for first, values in zip(flat[::2], flat[1::2], strict=True)
    ]
    return StreamRow(int(start), int(stop), server, chunks)


def _parts(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield the values in parts of this size."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
