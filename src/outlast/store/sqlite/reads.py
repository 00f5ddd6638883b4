"""Read rows. Each read is one query on a connection that never writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from outlast.store.protocol import claimable_of
from outlast.store.rows import (
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
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.claim_order import ready_workflows
from outlast.store.sqlite.session_reads import SessionReads
from outlast.store.stream_rows import (
    PartInfo,
    PartRow,
    StreamInfo,
    StreamRange,
    StreamRow,
    part_of,
    stream_of,
)

T = TypeVar("T")


class Reads(SessionReads):
    """The reads of a SQLite store. A subclass has the connection and the clock."""

    def _query(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Return what the action reads. Raise a StoreError."""
        raise NotImplementedError

    def _read(self, statement: str, values: Any = ()) -> list[Any]:
        return self._query(lambda db: db.execute(statement, values).fetchall())

    def run(self, id: str) -> RunRow | None:
        rows = self._read(sql.RUN_BY_ID, (id,))
        return RunRow(*rows[0]) if rows else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        values = query._asdict() | {"now": self.now()}
        del values["statuses"]
        if query.prefix:
            values |= NameRange.of(query.prefix)._asdict()
        return [RunRow(*row) for row in self._read(sql.runs_statement(query), values)]

    def ends(self, after: float, limit: int) -> list[EndCount]:
        return [EndCount(*row) for row in self._read(sql.ENDS, {"after": after, "limit": limit})]

    def journal(self, run: int, after: int = 0, limit: int = 10_000) -> list[Entry]:
        return [Entry(*row) for row in self._read(sql.JOURNAL, (run, after, limit))]

    def last_seq(self, run: int) -> int:
        return int(self._read(sql.LAST_SEQ, (run,))[0][0])

    def may_need_compensation(self, id: str) -> bool:
        return bool(self._read(sql.MAY_NEED_COMPENSATION, {"id": id}))

    def done(self, run: int, keys: Sequence[str]) -> dict[str, str | None]:
        return dict(self._read(sql.DONE, (run, json.dumps(list(keys)))))

    def done_count(self, run: int) -> int:
        return int(self._read(sql.DONE_COUNT, (run,))[0][0])

    def history(self, run: int) -> list[Entry]:
        return [Entry(*row) for row in self._read(sql.HISTORY, (run,))]

    def executions(self, run: int) -> list[ExecutionRow]:
        return [ExecutionRow(*row) for row in self._read(sql.EXECUTIONS, {"run": run})]

    def messages(self, run: int, after: int = 0) -> list[Message]:
        return [Message(*row) for row in self._read(sql.MESSAGES, (run, after))]

    def progress(self, run: int) -> dict[str, str]:
        return dict(self._read(sql.PROGRESS, (run,)))

    def stream(self, run: int, stream: str, after: int = 0, limit: int = 1000) -> StreamRow | None:
        where = {"run": run, "stream": stream, "after": after, "limit": limit}
        return stream_of(self._read(sql.STREAM, where))

    def many_streams(self, asked: Sequence[StreamRange]) -> list[StreamRow | None]:
        return [self.stream(*one) for one in asked]

    def unended(self, runs: Sequence[int]) -> set[int]:
        return {pk for (pk,) in self._read(sql.UNENDED, (json.dumps(list(runs)),))}

    def server(self) -> str:
        return ""

    def streams(self, run: int) -> list[StreamInfo]:
        return [StreamInfo(*row) for row in self._read(sql.STREAMS, (run,))]

    def parts(self, run: int) -> list[PartInfo]:
        return [PartInfo(*row) for row in self._read(sql.STREAM_PARTS, (run,))]

    def part(self, run: int, stream: str, writer: str) -> PartRow | None:
        where = {"run": run, "stream": stream, "writer": writer}
        return part_of(self._read(sql.STREAM_PART_VALUES, where))

    def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in self._read(sql.WORKERS)]

    def asked(self, worker: str) -> str | None:
        rows = self._read(sql.ASKED, (worker,))
        return rows[0][0] if rows else None

    def drains(self, limit: int = 20) -> list[DrainRow]:
        rows = self._read(sql.DRAINS, (limit,))
        seconds: dict[str, list[float]] = {row[0]: [] for row in rows}
        for drain, took in self._read(sql.RECOVERIES, (json.dumps(list(seconds)),)):
            seconds[drain].append(took)
        return [DrainRow._make((*row, tuple(seconds[row[0]]))) for row in rows]

    def durations(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
        found: dict[tuple[str, str], list[float]] = {
            (workflow, step): [] for workflow, step in pairs
        }
        for workflow, step, seconds in self._read(sql.DURATIONS, (json.dumps(list(found)),)):
            found[workflow, step].append(seconds)
        return found

    def measured(self) -> list[tuple[str, str]]:
        return self._read(sql.MEASURED_PAIRS)

    def peek(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> Claimable:
        def read(db: sqlite3.Connection) -> tuple[float | None, set[str], set[str]]:
            found = [db.execute(sql.NEXT_DUE).fetchone()[0]]
            # A key to review is as good as a run to make ready.
            found += [db.execute(sql.NEXT_KEY_CHANGE, (queue,)).fetchone()[0] for queue in queues]
            due: float | None = min((at for at in found if at is not None), default=None)
            ready, suspect = (
                {name for queue in queues for name in ready_workflows(db, queue, number)}
                for number in (1, 2)
            )
            return due, ready, suspect

        due, ready, suspect = self._query(read)
        return claimable_of(ready, suspect, due, self.now(), workflows)

    def queues(self) -> list[QueueRow]:
        return [
            QueueRow._make((*row[:-1], bool(row[-1])))
            for row in self._read(sql.QUEUES, {"now": self.now()})
        ]

    def depth(self, queue: str) -> int:
        rows = self._read(sql.DEPTH, {"queue": queue, "now": self.now()})
        queued, delayed = rows[0] if rows else (0, 0)
        return max(0, int(queued - delayed))

    def held(self, worker: str) -> list[tuple[int, int, str]]:
        return self._read(sql.HOLDS, (worker,))

    def cancels(self, worker: str) -> list[tuple[str, str]]:
        return self._read(sql.CANCELS, (worker,))
