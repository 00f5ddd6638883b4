# ruff: noqa: S608 - only our own names and the quoted schema name are interpolated
"""Define every statement of the PostgreSQL store that is not in a server-side function.

`{s}` is the schema, `{v}` its version. Values are always bound.

Operands have exactly the types of an operator of the server, by a cast where needed. Behind a
pooler `search_path` cannot be set, and PostgreSQL would prefer an operator in `public` that fits
exactly to one that needs a conversion.
"""

from __future__ import annotations

from typing import get_args

from outlast.store.commands import Record
from outlast.store.rows import DrainRow, Entry, ExecutionRow, RunRow, Status, WorkerRow

_RUN = ", ".join(RunRow._fields)
_ENTRY = ", ".join(Entry._fields)

PLANS = (
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "jit = off",
    "plan_cache_mode = force_generic_plan",
)
"""Settings for statements that are planned once. A plan made while the tables were empty stays in
use until they are analyzed, so it must use an index and its order. A bitmap scan reads and sorts
every entry before it returns the first few.
"""


class StatementNames:
    """Fill the names of a schema and its version into statements. Each is formatted once."""

    __slots__ = ("_formatted", "_names")

    def __init__(self, schema: str, version: int) -> None:
        self._names = {"s": schema, "v": str(version)}
        self._formatted: dict[str, str] = {}

    def __call__(self, statement: str, **fragments: str) -> str:
        """Return the statement with `{s}`, `{v}` and these words filled in."""
        if fragments:
            return statement.format(**self._names, **fragments)
        found = self._formatted.get(statement)
        if found is None:
            found = self._formatted[statement] = statement.format(**self._names)
        return found


COMMIT = "SELECT {s}.commit_{v}($1, $2, $3, $4, $5, $6, $7)"
RECORD = f"""
INSERT INTO {{s}}.entries ({", ".join(Record._fields)})
SELECT {", ".join(f"${number}" for number in range(1, len(Record._fields) + 1))}
FROM (SELECT 1 FROM {{s}}.runs WHERE pk = $1::bigint AND fence = $3::bigint
    AND fence > 0 FOR SHARE SKIP LOCKED) run,
     (SELECT 1 FROM {{s}}.writers WHERE id = ${len(Record._fields) + 1}
         AND epoch = ${len(Record._fields) + 2} FOR SHARE SKIP LOCKED) writer
WHERE ($2::bigint = 1 OR EXISTS (SELECT 1 FROM {{s}}.entries WHERE run = $1::bigint
    AND seq = $2::bigint - 1))
  AND current_setting('synchronous_commit') <> 'off'
"""
"""Write one new entry that follows the last one, if its fence and epoch are current; else write
nothing. The statement locks the writer's row instead of only reading it: a statement that waits
sees later changes only in rows that it locks.
"""
EPOCH = "SELECT {s}.epoch_{v}(%s)"
GONE = "DELETE FROM {s}.writers WHERE id = %s"
NOW = "SELECT {s}.seconds_{v}()"
LOCKED_SESSIONS = """
WITH wanted AS (SELECT space, id FROM unnest(%(spaces)s::text[], %(ids)s::text[]) w(space, id)),
free AS MATERIALIZED (
    SELECT s.pk FROM {s}.sessions s WHERE (s.space, s.id) IN (SELECT space, id
        FROM wanted) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT s.space, s.id FROM {s}.sessions s
WHERE (s.space, s.id) IN (SELECT space, id FROM wanted) AND s.pk NOT IN (SELECT pk FROM free)
"""
LOCKED = "SELECT pk, id FROM {s}.locked_{v}(%s::bigint[], %s::text[])"

RUN_BY_ID = f"SELECT {_RUN} FROM {{s}}.runs WHERE id = %s"
RUNS_BY_PK = f"SELECT {_RUN} FROM {{s}}.runs WHERE pk = ANY(%s)"
RUNS = f"SELECT {_RUN} FROM {{s}}.runs WHERE {{where}} ORDER BY pk DESC LIMIT %(limit)s"
RUNS_WHERE = {
    "statuses": "status = ANY(%(statuses)s)",
    "workflow": "workflow = %(workflow)s",
    "queue": "queue = %(queue)s",
    # Not starts_with(): before version 15 of Postgres it does not use the index.
    "low": "id >= %(low)s",
    "high": "id < %(high)s",
    "items": "(workflow = '') = %(items)s",
    "undoing": "(undoing IS NOT NULL) = %(undoing)s",
    "parent": "parent = %(parent)s",
    "by": "by = %(by)s",
    "key": "key = %(key)s",
    "waiting_for": r"ended IS NULL AND strpos(waits, E'\n' || %(waiting_for)s || E'\n') > 0",
    "worker": "worker = %(worker)s",
    "awaits_message": "ended IS NULL AND waits <> ''",
    "created_before": "created < %(created_before)s::float8",
    "created_after": "created >= %(created_after)s::float8",
    "ended_after": "ended >= %(ended_after)s::float8",
    "before_pk": "pk < %(before_pk)s",
}
# Each part has the condition of an index: runs_ended and runs_acked.
ENDS = """
SELECT status, count(*), sum(deaths), sum(interruptions), min(ended) FROM (
    (SELECT status, deaths, interruptions, ended, pk FROM {s}.runs
        WHERE ended IS NOT NULL AND NOT (workflow = '' AND status = 'done')
            AND ended >= %(after)s::float8
        ORDER BY ended DESC, pk DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT status, deaths, interruptions, ended, pk FROM {s}.runs
        WHERE workflow = '' AND status = 'done' AND ended >= %(after)s::float8
        ORDER BY ended DESC, pk DESC LIMIT %(limit)s)
    ORDER BY ended DESC, pk DESC LIMIT %(limit)s
) latest GROUP BY status ORDER BY status
"""
AWAITS_NONE = "NOT (ended IS NULL AND waits <> '')"
# As literals, so that an index for some statuses is used.
STATUS_IS = {status: f"status = '{status}'" for status in get_args(Status)}
IS_DELAYED = "(status = 'queued' AND ready = 0 AND due > coalesce(%(now)s, {s}.seconds_{v}()))"

JOURNAL = f"SELECT {_ENTRY} FROM {{s}}.entries WHERE run = %s AND seq > %s ORDER BY seq LIMIT %s"
HISTORY = f"SELECT {_ENTRY} FROM {{s}}.entries WHERE run = %s AND kind <> 'done' ORDER BY seq"
LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM {s}.entries WHERE run = %s"
MAY_NEED_COMPENSATION = "SELECT {s}.may_need_compensation_{v}(r) FROM {s}.runs r WHERE id = %s"
DONE = """
SELECT key, value FROM {s}.entries WHERE kind = 'done' AND run = %s AND key = ANY(%s)
    ORDER BY key, seq
"""
DONE_COUNT = "SELECT count(*) FROM {s}.entries WHERE kind = 'done' AND run = %s"
EXECUTIONS = f"""
SELECT {", ".join(ExecutionRow._fields)} FROM {{s}}.executions WHERE run = %(run)s
UNION ALL
SELECT abs(fence), claimed_by, claimed_host, claimed_pid, claimed,
    CASE WHEN worker IS NULL THEN coalesce(released, ended) END, coalesce(released_as, status),
    reason
FROM {{s}}.runs WHERE pk = %(run)s AND claimed IS NOT NULL
ORDER BY 1
"""
MESSAGES = """
SELECT number, name, id, value, at, by FROM {s}.messages WHERE run = %s AND number > %s
ORDER BY number
"""
PROGRESS = "SELECT key, value FROM {s}.progress WHERE run = %s"

SERVER = "SELECT CASE WHEN timeline IS NULL THEN '' ELSE {s}.timeline_{v}() END FROM {s}.meta"
STREAM = f"""
SELECT s.start, s.stop, c.first, c.value, ({SERVER})"""
STREAM += """
FROM {s}.streams s LEFT JOIN LATERAL (
    SELECT first, value FROM {s}.stream_chunks
    WHERE run = s.run AND stream = s.name AND first + count > %(after)s AND first >= coalesce(
        (SELECT max(first) FROM {s}.stream_chunks
         WHERE run = s.run AND stream = s.name AND first <= %(after)s), 0)
    ORDER BY first LIMIT %(limit)s
) c ON true
WHERE s.run = %(run)s AND s.name = %(stream)s ORDER BY c.first
"""
MANY_STREAMS = f"""
SELECT w.position, ({SERVER}), s.start, s.stop, c.first, c.value"""
MANY_STREAMS += """
FROM unnest(%(runs)s::bigint[], %(streams)s::text[], %(afters)s::bigint[], %(limits)s::bigint[])
    WITH ORDINALITY w(run, name, after, count, position)
JOIN {s}.streams s ON s.run = w.run AND s.name = w.name
LEFT JOIN LATERAL (
    SELECT first, value FROM {s}.stream_chunks
    WHERE run = s.run AND stream = s.name AND first + stream_chunks.count > w.after
        AND first >= coalesce(
            (SELECT max(first) FROM {s}.stream_chunks
             WHERE run = s.run AND stream = s.name AND first <= w.after), 0)
    ORDER BY first LIMIT w.count
) c ON true
ORDER BY w.position, c.first
"""
UNENDED = """
SELECT pk FROM {s}.runs
WHERE pk = ANY(%s::bigint[]) AND status NOT IN ('done', 'failed', 'cancelled', 'dead')
"""
STREAMS = "SELECT name, start, stop FROM {s}.streams WHERE run = %s ORDER BY name"
STREAM_PARTS = """
SELECT stream, writer, length FROM {s}.stream_parts WHERE run = %s ORDER BY stream, writer
"""
STREAM_PART = """
SELECT p.length, c.value FROM {s}.stream_parts p LEFT JOIN {s}.stream_chunks c
    ON c.run = p.run AND c.stream = p.stream AND c.first >= p.first AND c.writer = p.writer
WHERE p.run = %s AND p.stream = %s AND p.writer = %s ORDER BY c.first
"""

WORKERS = f"""
SELECT {", ".join(f"w.{name}" for name in WorkerRow._fields[:-1])},
    (SELECT count(*) FROM {{s}}.runs r WHERE r.worker = w.id)
FROM {{s}}.workers w ORDER BY started, id
"""
ASKED = "SELECT asked FROM {s}.workers WHERE id = %s"
HOLDS = "SELECT pk, fence, id FROM {s}.runs WHERE worker = %s"
CANCELS = "SELECT id, cancel FROM {s}.runs WHERE worker = %s AND cancel IS NOT NULL"
DYING = "SELECT worker FROM {s}.dying_{v}(coalesce(%s, {s}.seconds_{v}()))"

DRAINS = (
    f"SELECT {', '.join(DrainRow._fields[:-1])} FROM {{s}}.drains ORDER BY number DESC LIMIT %s"
)
RECOVERIES = "SELECT drain, seconds FROM {s}.recoveries WHERE drain = ANY(%s) ORDER BY seconds"
MEASURED_PAIRS = "SELECT DISTINCT workflow, step FROM {s}.durations ORDER BY workflow, step"
DURATIONS = """
SELECT d.workflow, d.step, d.seconds FROM unnest(%s::text[], %s::text[]) pair(workflow, step)
JOIN {s}.durations d ON d.workflow = pair.workflow AND d.step = pair.step ORDER BY d.number
"""

LOOK = "SELECT {s}.peek_{v}(%s, %s, %s)"
DEPTH = """
SELECT (SELECT count(*) FROM {s}.runs WHERE queue = %(queue)s AND status = 'queued')
     - (SELECT count(*) FROM {s}.runs
        WHERE queue = %(queue)s AND status = 'queued' AND ready = 0
            AND due > coalesce(%(now)s, {s}.seconds_{v}()))
"""
QUEUES = """
WITH moment AS (SELECT coalesce(%s, {s}.seconds_{v}()) AS now)
SELECT name, coalesce(queued, 0), coalesce(running, 0), coalesce(waiting, 0), coalesce(parked, 0),
    coalesce(dead, 0), oldest,
       coalesce(submitted, 0), coalesce(just_ended, 0), depth_max, concurrency_max,
       coalesce(returned, 0), returned_since, coalesce(undone, 0), coalesce(stuck, 0),
           coalesce(delayed, 0), key_concurrency_max, key_starts_max, key_period, paused
FROM {s}.queues LEFT JOIN (
    SELECT queue, count(*) FILTER (WHERE status = 'queued') AS queued,
           count(*) FILTER (WHERE status = 'running' AND parent IS NULL) AS running,
           count(*) FILTER (WHERE status = 'waiting') AS waiting,
               count(*) FILTER (WHERE status = 'parked') AS parked,
           count(*) FILTER (WHERE status = 'dead') AS dead,
           min(created) FILTER (WHERE status = 'queued' AND due <= now) AS oldest,
           count(*) FILTER (WHERE created > now - 60::float8) AS submitted,
               count(*) FILTER (WHERE ended > now - 60::float8) AS just_ended,
           count(*) FILTER (WHERE status = 'queued'
               AND (interrupted IS NOT NULL OR deaths_in_a_row > 0)) AS returned,
           min(due) FILTER (WHERE status = 'queued'
               AND (interrupted IS NOT NULL OR deaths_in_a_row > 0) AND due > 0::float8
                   AND due <= now)
               AS returned_since,
           count(*) FILTER (WHERE undoing IS NOT NULL
               AND status IN ('queued', 'running', 'waiting')) AS undone,
           count(*) FILTER (WHERE undoing IS NOT NULL AND status = 'parked') AS stuck,
           count(*) FILTER (WHERE status = 'queued' AND ready = 0 AND due > now) AS delayed
    FROM {s}.runs, moment GROUP BY queue
) counts ON queue = name
WHERE listed ORDER BY name
"""

NOTIFY = "SELECT pg_notify(%s, '')"
HEART = "SELECT {s}.heartbeat_{v}(%s, %s, %s)"
QUIET = "SELECT {s}.end_heartbeat_{v}(%s, %s)"
