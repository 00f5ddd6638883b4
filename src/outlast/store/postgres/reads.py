"""Read rows. Each read is one query on a connection that never writes, except `queues`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from outlast.store.postgres import statements as sql
from outlast.store.postgres.scan_cursors import ScanCursorCache
from outlast.store.postgres.session_reads import SessionReads
from outlast.store.postgres.statements import StatementNames
from outlast.store.protocol import claimable_of
from outlast.store.rows import (
    DELAYED,
    Claimable,
    DrainRow,
    EndCount,
    Entry,
    ExecutionRow,
    Message,
    RunQuery,
    RunRow,
    WorkerRow,
)
from outlast.store.session_rows import NameRange
from outlast.store.stream_rows import (
    PartInfo,
    PartRow,
    StreamInfo,
    StreamRange,
    StreamRow,
    part_of,
    stream_of,
)


class Reads(SessionReads):
    """The reads of a PostgreSQL store. A subclass has the connection and the clock."""

    _named: StatementNames
    _scan_cursors: ScanCursorCache

    def run(self, id: str) -> RunRow | None:
        rows = self._read(sql.RUN_BY_ID, (id,))
        return RunRow(*rows[0]) if rows else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        ids = NameRange.of(query.prefix or "")
        values = query._asdict() | {
            "statuses": list(query.statuses) or None,
            "now": self._at(),
            "low": ids.low or None,
            "high": ids.high,
        }
        where = dict(sql.RUNS_WHERE)
        if query.awaits_message is False:
            where["awaits_message"] = sql.AWAITS_NONE
        if query.statuses:
            known = [sql.STATUS_IS[one] for one in query.statuses if one in sql.STATUS_IS]
            if DELAYED in query.statuses:
                known.append(self._named(sql.IS_DELAYED))
            where["statuses"] = f"({' OR '.join(known) or 'false'})"
        parts = [text for name, text in where.items() if values[name] is not None]
        return [
            RunRow(*row)
            for row in self._read(sql.RUNS, values, where=" AND ".join(parts) or "true")
        ]

    def ends(self, after: float, limit: int) -> list[EndCount]:
        return [EndCount(*row) for row in self._read(sql.ENDS, {"after": after, "limit": limit})]

    def journal(self, run: int, after: int = 0, limit: int = 10_000) -> list[Entry]:
        return [Entry(*row) for row in self._read(sql.JOURNAL, (run, after, limit))]

    def last_seq(self, run: int) -> int:
        return int(self._read(sql.LAST_SEQ, (run,))[0][0])

    def may_need_compensation(self, id: str) -> bool:
        rows = self._read(sql.MAY_NEED_COMPENSATION, (id,))
        return bool(rows and rows[0][0])

    def done(self, run: int, keys: Sequence[str]) -> dict[str, str | None]:
        return dict(self._read(sql.DONE, (run, list(keys))))

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
        rows = self._read(sql.STREAM, where)
        return stream_of([row[:-1] for row in rows], rows[0][-1]) if rows else None

    def many_streams(self, asked: Sequence[StreamRange]) -> list[StreamRow | None]:
        runs, streams, afters, limits = map(list, zip(*asked, strict=True)) if asked else [[]] * 4
        where = {"runs": runs, "streams": streams, "afters": afters, "limits": limits}
        by_position = groupby(self._read(sql.MANY_STREAMS, where), itemgetter(0))
        found = {
            position: stream_of([row[2:] for row in (first, *rest)], first[1])
            for position, (first, *rest) in by_position
        }
        return [found.get(position) for position in range(1, len(asked) + 1)]

    def unended(self, runs: Sequence[int]) -> set[int]:
        return {pk for (pk,) in self._read(sql.UNENDED, (list(runs),))}

    def server(self) -> str:
        return str(self._read(sql.SERVER)[0][0])

    def streams(self, run: int) -> list[StreamInfo]:
        return [StreamInfo(*row) for row in self._read(sql.STREAMS, (run,))]

    def parts(self, run: int) -> list[PartInfo]:
        return [PartInfo(*row) for row in self._read(sql.STREAM_PARTS, (run,))]

    def part(self, run: int, stream: str, writer: str) -> PartRow | None:
        return part_of(self._read(sql.STREAM_PART, (run, stream, writer)))

    def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in self._read(sql.WORKERS)]

    def asked(self, worker: str) -> str | None:
        rows = self._read(sql.ASKED, (worker,))
        return rows[0][0] if rows else None

    def drains(self, limit: int = 20) -> list[DrainRow]:
        rows = self._read(sql.DRAINS, (limit,))
        seconds: dict[str, list[float]] = {row[0]: [] for row in rows}
        for drain, took in self._read(sql.RECOVERIES, (list(seconds),)):
            seconds[drain].append(took)
        return [DrainRow._make((*row, tuple(seconds[row[0]]))) for row in rows]

    def durations(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
        found: dict[tuple[str, str], list[float]] = {
            (workflow, step): [] for workflow, step in pairs
        }
        if found:
            workflows, steps = zip(*found, strict=True)
            for workflow, step, seconds in self._read(
                sql.DURATIONS, (list(workflows), list(steps))
            ):
                found[workflow, step].append(seconds)
        return found

    def measured(self) -> list[tuple[str, str]]:
        return self._read(sql.MEASURED_PAIRS)

    def peek(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> Claimable:
        if not queues:
            return Claimable(ready=False, suspect=False, next_due=None, overdue=False, unknown=())
        scan_cursors = self._scan_cursors.text()
        text = self._read(
            sql.LOOK, (json.dumps(queues, ensure_ascii=False), scan_cursors, self._at())
        )[0][0]
        now, due, firsts, suspects, seconds, walked = json.loads(text)
        # Otherwise the next claim has more to make ready than the cache remembers.
        if due is None or due > now:
            self._scan_cursors.learn(seconds, walked, firsts, now, floored=scan_cursors is not None)
        found = claimable_of(
            {first[1] for first in firsts or ()}, set(suspects or ()), due, now, workflows
        )
        if scan_cursors is None or found.ready:
            return found
        # Runs before the remembered positions are found once those are forgotten, and no further
        # notification announces them.
        again = now + self._scan_cursors.left()
        return found._replace(
            next_due=again if found.next_due is None else min(found.next_due, again)
        )

    def depth(self, queue: str) -> int:
        return int(self._read(sql.DEPTH, {"queue": queue, "now": self._at()})[0][0])

    def held(self, worker: str) -> list[tuple[int, int, str]]:
        return self._read(sql.HOLDS, (worker,))

    def cancels(self, worker: str) -> list[tuple[str, str]]:
        return self._read(sql.CANCELS, (worker,))
