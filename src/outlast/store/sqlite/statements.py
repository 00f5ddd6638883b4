"""Define every SQL statement of the SQLite store. Values are always bound."""

from __future__ import annotations

from outlast.store.rows import SUSPECT_DEATHS, DrainRow, Entry, ExecutionRow, RunRow, WorkerRow

_RUN = ", ".join(RunRow._fields)
_READY = f"CASE WHEN deaths_in_a_row >= {SUSPECT_DEATHS} THEN 2 ELSE 1 END"

NEXT_FENCE = "UPDATE counters SET value = value + ? WHERE name = 'fence' RETURNING value"

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

RUN_BY_ID = f"SELECT {_RUN} FROM runs WHERE id = ?"

RUN_BY_PK = f"SELECT {_RUN} FROM runs WHERE pk = ?"

RUN_BY_FENCE = f"SELECT {_RUN} FROM runs WHERE pk = ? AND fence = ? AND fence > 0"

RUNS_BY_ID = f"SELECT {_RUN} FROM runs WHERE id IN (SELECT value FROM json_each(?))"

SUBMIT = f"""
INSERT INTO runs (id, workflow, args, queue, priority, status, fence, worker, token, seed, parent,
    attempts_max,
      interruptions_max, created, started, due, timeout, deadline, abandon_after, lives,
      claimed, claimed_by, claimed_host, claimed_pid)
VALUES (:id, :workflow, :args, :queue, :priority, 'running', :fence, :worker, :token, :seed,
    :parent, :attempts_max,
        :interruptions_max, :now, :now, :now, :timeout, :now + :timeout, :abandon_after, 1,
        :now, :worker, :host, :pid)
ON CONFLICT (id) DO NOTHING
RETURNING {_RUN}
"""
ENQUEUE = """
INSERT INTO runs (id, workflow, args, queue, priority, status, fence, token, seed, parent,
    attempts_max,
      interruptions_max, created, due, timeout, abandon_after, ready)
VALUES (?, ?, ?, ?, ?, 'queued', 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

CLAIMED_BY_TOKEN = f"SELECT {_RUN} FROM runs WHERE worker = ? AND token = ? ORDER BY fence"

# The index of ready runs is partial. SQLite uses it only if a query repeats its exact condition.
COME_DUE = f"""
UPDATE runs SET ready = {_READY}
WHERE pk IN (SELECT pk FROM runs WHERE ready = 0 AND status IN ('queued', 'waiting') AND due <= ?
    ORDER BY due LIMIT 1000)
"""
NEXT_DUE = "SELECT min(due) FROM runs WHERE ready = 0 AND status IN ('queued', 'waiting')"
QUEUE_NAMES = "SELECT name FROM queues ORDER BY name"
NEXT_WORKFLOW = {
    ready: f"""
    SELECT workflow FROM runs
    WHERE ready > 0 AND ready = {ready} AND queue = ? AND workflow > ? ORDER BY workflow LIMIT 1
    """
    for ready in (1, 2)
}
READY_ITEM = {
    ready: f"""
    SELECT 1 FROM runs WHERE ready > 0 AND ready = {ready} AND queue = ? AND workflow = '' LIMIT 1
    """
    for ready in (1, 2)
}
_ABANDONED_AT = """
CASE WHEN undoing IS NULL AND cancel IS NULL AND started IS NOT NULL THEN due + abandon_after END
"""
CLAIMABLE = {
    (ready, new): f"""
    SELECT -priority, coalesce(interrupted + 0.0, 1e12), due + 0.0, pk, queue, status, parent,
        {_ABANDONED_AT}, claimed IS NOT NULL FROM runs
    WHERE ready > 0 AND ready = {ready} AND queue = ? AND workflow = ?
        AND (interrupted IS NULL) = {new}
    ORDER BY priority DESC, interrupted, due, pk LIMIT ?
    """
    for ready in (1, 2)
    for new in (0, 1)
}
CLAIMABLE_CHILDREN = {
    new: f"""
    SELECT -priority, coalesce(interrupted + 0.0, 1e12), due + 0.0, pk, queue, status, parent,
        {_ABANDONED_AT}, claimed IS NOT NULL FROM runs
    WHERE ready > 0 AND parent IS NOT NULL AND queue = ? AND workflow = ? AND ready = ?
        AND (interrupted IS NULL) = {new}
    ORDER BY priority DESC, interrupted, due, pk LIMIT ?
    """
    for new in (0, 1)
}
CLAIMABLE_BY_ID = """
SELECT -priority, coalesce(interrupted + 0.0, 1e12), due + 0.0, pk, queue, status, parent, NULL,
    claimed IS NOT NULL FROM runs
WHERE id IN (SELECT value FROM json_each(?)) AND status IN ('queued', 'waiting')
    AND (ready > 0 OR due <= ?)
ORDER BY pk LIMIT ?
"""

RECOVERED = """
INSERT OR REPLACE INTO recoveries (drain, run, seconds, by)
SELECT left_by, pk, max(:now - left_at, 0.0), :by FROM runs
WHERE pk IN (SELECT value FROM json_each(:runs)) AND left_by IN (SELECT worker FROM drains)
"""
CLAIM = """
UPDATE runs SET status = 'running', ready = 0, left_by = NULL, left_at = NULL, fence = ?,
    worker = ?, token = ?, waits = '', lives = lives + 1,
    claimed_by = ?, claimed_host = ?, claimed_pid = ?, claimed = ?,
    released = NULL, released_as = NULL,
    started = coalesce(started, ?), deadline = CASE WHEN undoing IS NULL
        THEN coalesce(deadline, ? + timeout) END
WHERE pk = ?
"""

_ENDED_AT = "coalesce(released, ended)"
_LEFT_AS = "coalesce(released_as, status)"
KEEP_EXECUTION = f"""
INSERT INTO executions (run, fence, worker, host, pid, began, ended, status, reason)
SELECT pk, abs(fence), claimed_by, claimed_host, claimed_pid, claimed, {_ENDED_AT}, {_LEFT_AS},
    reason
FROM runs WHERE pk = ?
"""
EXECUTIONS = f"""
SELECT {", ".join(ExecutionRow._fields)} FROM executions WHERE run = :run
UNION ALL
SELECT abs(fence), claimed_by, claimed_host, claimed_pid, claimed,
    CASE WHEN worker IS NULL THEN {_ENDED_AT} END, {_LEFT_AS}, reason
FROM runs WHERE pk = :run AND claimed IS NOT NULL
ORDER BY 1
"""

RECORD = """
INSERT INTO entries (run, seq, fence, kind, key, at, args, value, error, seconds, attempt, asked,
    cost)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM runs WHERE pk = ? AND fence = ? AND fence > 0
ON CONFLICT (run, seq) DO NOTHING
"""
RECORDED = "SELECT value FROM entries WHERE run = ? AND seq = ? AND fence = ?"
SEQ_TAKEN = "SELECT 1 FROM entries WHERE run = ? AND seq = ?"

APPEND = """
INSERT INTO entries (run, seq, fence, kind, key, at, value)
SELECT :run, coalesce(max(seq), 0) + 1, :fence, :kind, :key, :now, :value FROM entries
    WHERE run = :run
RETURNING seq
"""
MARK = "UPDATE runs SET mark = ? WHERE pk = ?"

SAVE = """
INSERT INTO progress (run, key, fence, attempt, value, at)
SELECT :run, :key, :fence, :attempt, :value, :now FROM runs
    WHERE pk = :run AND fence = :fence AND fence > 0
ON CONFLICT (run, key) DO UPDATE SET fence = excluded.fence, attempt = excluded.attempt,
    value = excluded.value,
                         at = excluded.at
WHERE excluded.fence > progress.fence OR excluded.attempt >= progress.attempt
"""
HAS_FENCE = "SELECT 1 FROM runs WHERE pk = ? AND fence = ? AND fence > 0"
PROGRESS = "SELECT key, value FROM progress WHERE run = ?"
FORGET_PROGRESS = "DELETE FROM progress WHERE run = ?"

WAIT = "UPDATE runs SET waits = ? WHERE pk = ? AND fence = ? AND fence > 0"

SETTLE = """
UPDATE runs SET status = :status, fence = -abs(fence), worker = NULL, value = :value,
    error = :error, reason = :reason,
    failed_at = :failed_at, interrupted = NULL, waits = '', deaths_in_a_row = 0,
        interruptions_in_a_row = 0,
    undoing = CASE WHEN :status = 'parked' THEN undoing END,
    -- since when its clock stands still
    due = CASE WHEN :status = 'parked' THEN :now ELSE due END,
    released = CASE WHEN :status = 'parked' THEN :now END,
    released_as = CASE WHEN :status = 'parked' THEN 'parked' END,
    ended = CASE WHEN :status = 'parked' THEN NULL ELSE :now END
WHERE pk = :run AND fence = :fence AND fence > 0
  AND NOT (:unless_cancelled AND :status = 'parked' AND cancel IS NOT NULL AND undoing IS NULL)
RETURNING queue, parent
"""
SETTLED = """
SELECT 1 FROM runs
WHERE pk = ? AND fence = ? AND fence < 0 AND status IN ('done', 'failed', 'cancelled', 'parked')
  -- else it was a dead letter, cancelled since
  AND deaths_in_a_row = 0 AND interruptions_in_a_row = 0
"""

_PROGRESS = """
(EXISTS (SELECT 1 FROM entries
         WHERE run = pk AND seq > mark AND entries.fence = runs.fence
             AND kind IN ('step', 'attempt', 'inner', 'child', 'session', 'done'))
 OR EXISTS (SELECT 1 FROM progress WHERE run = pk AND progress.fence = runs.fence))
"""
HELD = f"SELECT {_RUN}, {_PROGRESS} FROM runs WHERE pk = ? AND fence = ? AND fence > 0"
HELD_BY = f"SELECT {_RUN}, {_PROGRESS} FROM runs WHERE worker = ? ORDER BY pk"
HOLDS = "SELECT pk, fence, id FROM runs WHERE worker = ?"
GIVE_BACK = """
UPDATE runs SET status = :status, fence = -abs(fence), worker = NULL, due = :due, ready = :ready,
    reason = :reason, waits = :waits, released = :now, released_as = :status,
    interrupted = :interrupted, deaths = :deaths, interruptions = :interruptions,
        failures = :failures,
    deaths_in_a_row = :deaths_in_a_row,
        interruptions_in_a_row = :interruptions_in_a_row,
    ended = CASE WHEN :status IN ('dead', 'cancelled') THEN :now END
WHERE pk = :run
"""
GIVE_BACK_ALL_BUT = f"""
UPDATE runs SET status = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN 'cancelled'
    ELSE 'queued' END,
    ended = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN :now END,
    reason = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN cancel
        ELSE :reason END,
    ready = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN 0
                 WHEN deaths_in_a_row >= {SUSPECT_DEATHS} AND NOT {_PROGRESS} THEN 2
                     ELSE 1 END,
    fence = -abs(fence), worker = NULL, due = :now, released = :now,
    released_as = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN 'cancelled'
        ELSE 'queued' END,
    deaths_in_a_row = CASE WHEN deaths_in_a_row > 0 AND NOT {_PROGRESS}
        THEN deaths_in_a_row ELSE 0 END,
    interruptions_in_a_row =
        CASE WHEN interruptions_in_a_row > 0 AND NOT {_PROGRESS}
            THEN interruptions_in_a_row ELSE 0 END
WHERE worker = :worker AND fence NOT IN (SELECT value FROM json_each(:keep))
RETURNING pk, id, queue, parent, status
"""
LEFT = "UPDATE runs SET left_by = ?, left_at = ? WHERE pk = ?"
GIVEN_BACK = """
SELECT status FROM runs WHERE pk = ? AND fence = ? AND fence < 0
  AND (status IN ('queued', 'waiting', 'dead')
       OR (status = 'cancelled' AND (workflow = '' OR deaths_in_a_row > 0
           OR interruptions_in_a_row > 0)))
"""
NEWS = """
SELECT EXISTS (SELECT 1 FROM messages WHERE run = :run AND number > :seen
    AND name IN (SELECT value FROM json_each(:waits)))
    OR (SELECT count(*) FROM runs WHERE id IN (SELECT value FROM json_each(:children))
        AND ended IS NULL)
       < json_array_length(:children)
"""
ACK = """
UPDATE runs SET status = 'done', fence = -fence, worker = NULL, ended = ?
    WHERE pk = ? AND fence = ? AND fence > 0
"""
ACKED_BY = "SELECT 1 FROM runs WHERE pk = ? AND fence = ? AND fence < 0 AND status = 'done'"

MAILBOX = """
SELECT (SELECT coalesce(max(number), 0) FROM messages WHERE run = :run),
       EXISTS (SELECT 1 FROM messages WHERE run = :run AND name = :name AND id = :message)
"""
SEND = """
INSERT INTO messages (run, number, name, id, value, at)
SELECT :run, coalesce(max(number), 0) + 1, :name, :message, :value, :now FROM messages
    WHERE run = :run
ON CONFLICT (run, name, id) DO NOTHING
"""
WAKE = f"""
UPDATE runs SET due = min(due, :now), ready = {_READY}
WHERE pk = :run AND status = 'waiting' AND instr(waits, char(10) || :name || char(10)) > 0
"""
WAKE_PARENT = f"""
UPDATE runs SET due = min(due, :now), ready = {_READY} WHERE id = :parent AND status = 'waiting'
"""

CANCEL = f"""
UPDATE runs SET cancel = coalesce(cancel, :why), due = min(due, :now),
    ready = CASE WHEN status IN ('queued', 'waiting') THEN {_READY} ELSE 0 END
WHERE pk = :run
"""
CANCEL_AT_ONCE = """
UPDATE runs SET status = 'cancelled', cancel = coalesce(cancel, :why),
    reason = coalesce(cancel, :why), fence = -abs(fence), ended = :now, waits = '', ready = 0
WHERE pk = :run
"""

REQUEUE = """
UPDATE runs SET status = 'queued', fence = -abs(fence), worker = NULL, due = :now, ended = NULL,
    reason = NULL,
    token = :token, value = NULL, error = NULL, failed_at = NULL, waits = '',
        deaths = 0, ready = 1,
    -- it may have come while the run was being parked
    cancel = CASE WHEN :again THEN NULL ELSE cancel END,
    -- it has a journal
    deaths_in_a_row = 0, interruptions_in_a_row = 0, failures = 0,
        lives = max(lives, 1),
    left_by = NULL, left_at = NULL,
    released = coalesce(released, ended), released_as = coalesce(released_as, status),
    deadline = CASE WHEN undoing IS NOT NULL THEN NULL
                    WHEN :again THEN :now + timeout
                        ELSE deadline + :now - coalesce(ended, due) END
WHERE pk = :run
"""

REQUEUED = """
SELECT 1 FROM entries INDEXED BY entries_again
WHERE run = ? AND kind IN ('retry', 'resume') AND kind = ? AND json_extract(value, '$.token') = ?
"""

UNDO = """
UPDATE runs SET undoing = :verdict, status = 'queued', fence = -abs(fence), worker = NULL,
    released = CASE WHEN worker IS NULL THEN coalesce(released, ended) ELSE :now END,
    released_as = CASE WHEN worker IS NULL THEN coalesce(released_as, status) ELSE 'undoing' END,
    due = :now, ready = 1,
    interrupted = coalesce(interrupted, :now), deaths_in_a_row = 0,
        interruptions_in_a_row = 0, waits = '',
    cancel = NULL, deadline = NULL, ended = NULL, error = NULL, reason = NULL,
        failed_at = NULL
WHERE pk = :run
"""
UNDONE_BY = """
SELECT 1 FROM runs WHERE pk = ? AND fence = ? AND fence < 0 AND status = 'queued' AND undoing = ?
"""
HAS_DEALT = """
SELECT 1 FROM runs WHERE parent = :id UNION ALL
SELECT 1 FROM entries WHERE run = (SELECT pk FROM runs WHERE id = :id)
    AND kind IN ('intent', 'compensation', 'child') LIMIT 1
"""
DECIDED = """
SELECT 1 FROM entries WHERE run = ? AND CASE WHEN kind = 'decision'
    THEN json_extract(value, '$.token') = ? END
"""
ABLE = "SELECT id, lease_until, queues, workflows FROM workers WHERE NOT draining AND started <= ?"

ENLIST = """
INSERT INTO workers (id, host, pid, started, lease_until, lease, renewed, queues, workflows,
    concurrency)
VALUES (:worker, :host, :pid, :now, :now + :lease, :lease, :now, :queues, :workflows, :concurrency)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, lease = excluded.lease,
    renewed = excluded.renewed,
    queues = excluded.queues, workflows = excluded.workflows, concurrency = excluded.concurrency
"""
RENEW = """
UPDATE workers SET lease_until = :now + :lease, lease = :lease, renewed = :now,
    draining = max(draining, :draining) WHERE id = :worker
"""
REGISTERED = "SELECT draining, host, pid FROM workers WHERE id = ?"
LEAVE = "DELETE FROM workers WHERE id = ?"
HOLDERS = """
SELECT id, lease_until, lease, draining, renewed FROM workers
UNION SELECT DISTINCT worker, NULL, NULL, 0, NULL FROM runs
WHERE worker IS NOT NULL AND worker NOT IN (SELECT id FROM workers)
"""
DRAIN = "UPDATE workers SET draining = 1 WHERE id = ?"
ASK_DRAIN = "UPDATE workers SET asked = coalesce(asked, :why) WHERE id = :worker"
ASKED = "SELECT asked FROM workers WHERE id = ?"

DRAIN_OPEN = """
INSERT INTO drains (worker, host, pid, reason, began, held)
SELECT id, host, pid, :reason, :now, (SELECT count(*) FROM runs WHERE worker = :worker) FROM workers
    WHERE id = :worker
ON CONFLICT (worker) DO NOTHING
"""
DRAIN_REPORT = """
INSERT INTO drains (worker, host, pid, reason, began, ended, held, report)
VALUES (:worker, '', 0, '', :now, :now, 0, :report)
ON CONFLICT (worker) DO UPDATE SET ended = excluded.ended, report = excluded.report WHERE NOT swept
"""
DRAIN_SWEPT = """
UPDATE drains SET ended = :now, report = :report, swept = 1 WHERE worker = :worker AND ended IS NULL
"""
DRAINS_TOO_MANY = """
DELETE FROM drains WHERE number < (SELECT number FROM drains ORDER BY number DESC
    LIMIT 1 OFFSET :kept - 1) RETURNING worker
"""
DRAIN_FORGET = ("DELETE FROM recoveries WHERE drain = ?", "DELETE FROM drains WHERE worker = ?")
DRAINS = f"SELECT {', '.join(DrainRow._fields[:-1])} FROM drains ORDER BY number DESC LIMIT ?"
RECOVERIES = """
SELECT drain, seconds FROM recoveries WHERE drain IN (SELECT value FROM json_each(?))
    ORDER BY seconds
"""

MEASURED = """
INSERT INTO durations (workflow, step, number, seconds)
SELECT :workflow, :step, coalesce(max(number), 0) + 1, :seconds FROM durations
    WHERE workflow = :workflow AND step = :step
"""
DURATIONS_TOO_MANY = """
DELETE FROM durations WHERE workflow = :workflow AND step = :step
    AND number <= (SELECT max(number) FROM durations
        WHERE workflow = :workflow AND step = :step) - :kept
"""
MEASURED_PAIRS = "SELECT DISTINCT workflow, step FROM durations ORDER BY workflow, step"
DURATIONS = """
SELECT durations.workflow, step, seconds FROM json_each(?) AS pair CROSS JOIN durations
WHERE durations.workflow = json_extract(pair.value, '$[0]')
    AND step = json_extract(pair.value, '$[1]')
ORDER BY number
"""

RECORD_DEATH = "INSERT OR IGNORE INTO worker_deaths (at, worker, run) VALUES (:now, :worker, :run)"
DEATHS_TOO_MANY = """
DELETE FROM worker_deaths WHERE (at, worker, run) IN (
    SELECT at, worker, run FROM worker_deaths ORDER BY at DESC LIMIT -1 OFFSET :kept
)
"""
OWN_DEATHS = "SELECT at FROM worker_deaths WHERE run = :run ORDER BY at DESC LIMIT :limit"
OTHER_DEATHS = """
SELECT count(CASE WHEN charged > 1 OR run = 0 THEN 1 END) + count(DISTINCT CASE WHEN charged = 1
    AND run <> 0 THEN run END)
FROM (
    SELECT count(*) AS charged, min(run) AS run FROM worker_deaths WHERE at > :since AND at <= :now
    GROUP BY at, worker HAVING NOT sum(run = :run)
)
"""
FLEET_SIZE = """
SELECT count(*) FROM (SELECT id FROM workers UNION SELECT worker FROM worker_deaths WHERE at = :now)
"""

CUT_LEASES = "UPDATE workers SET lease_until = :now + lease WHERE lease_until > :now + lease + 1"

PULSE = "SELECT beat, awake, (SELECT coalesce(min(lease), 0) FROM workers) FROM pulse"
BEAT = "UPDATE pulse SET beat = ?, awake = ?"

QUEUE = "SELECT queued, running, depth_max, concurrency_max FROM queues WHERE name = ?"
DEPTH = """
SELECT queued, (SELECT count(*) FROM runs INDEXED BY runs_delayed
    WHERE ready = 0 AND status = 'queued' AND queue = :queue AND due > :now)
FROM queues WHERE name = :queue
"""
MOVED = """
INSERT INTO queues (name, queued, running) VALUES (:name, :queued, :running)
ON CONFLICT (name) DO UPDATE SET queued = queued + excluded.queued,
    running = running + excluded.running
"""
LISTED = "INSERT INTO queues (name) VALUES (?)"
LIMIT = """
INSERT INTO queues (name, depth_max, concurrency_max) VALUES (:queue, :depth_max, :concurrency_max)
ON CONFLICT (name) DO UPDATE SET depth_max = CASE WHEN :keep_depth THEN depth_max
    ELSE excluded.depth_max END,
                     concurrency_max = CASE WHEN :keep_concurrency THEN concurrency_max
                         ELSE excluded.concurrency_max END
"""
_RETURNED = "(status = 'queued' AND (interrupted IS NOT NULL OR deaths_in_a_row > 0))"
QUEUES = f"""
SELECT name, queued, running, coalesce(waiting, 0), coalesce(parked, 0), coalesce(dead, 0), oldest,
       coalesce(submitted, 0), coalesce(just_ended, 0), depth_max, concurrency_max,
       coalesce(returned, 0), returned_since, coalesce(undone, 0), coalesce(stuck, 0),
           coalesce(delayed, 0)
FROM queues LEFT JOIN (
    SELECT queue, sum(status = 'waiting') AS waiting, sum(status = 'parked') AS parked,
        sum(status = 'dead') AS dead,
           min(CASE WHEN status = 'queued' AND due <= :now THEN created END) AS oldest,
           sum(created > :now - 60) AS submitted, sum(ended > :now - 60) AS just_ended,
           sum({_RETURNED}) AS returned,
               min(CASE WHEN {_RETURNED} AND due > 0 AND due <= :now
       THEN due END) AS returned_since,
           sum(undoing IS NOT NULL AND status IN ('queued', 'running', 'waiting')) AS undone,
           sum(undoing IS NOT NULL AND status = 'parked') AS stuck,
           sum(status = 'queued' AND ready = 0 AND due > :now) AS delayed
    FROM runs GROUP BY queue
) ON queue = name
ORDER BY name
"""

_PRUNABLE = """
ended < :before AND undoing IS NULL AND (:dead OR status <> 'dead')
    AND (parent IS NULL OR NOT EXISTS (
    WITH RECURSIVE line (parent, needs_it) AS (
        SELECT runs.parent, 0
        UNION SELECT above.parent, above.ended IS NULL OR above.undoing IS NOT NULL
            OR (above.status = 'dead' AND NOT :dead)
              FROM line CROSS JOIN runs AS above WHERE above.id = line.parent
    ) SELECT 1 FROM line WHERE needs_it
)) AND (:dead OR NOT EXISTS (
    WITH RECURSIVE line (id, status) AS (
        SELECT below.id, below.status FROM runs AS below WHERE below.parent = runs.id
        UNION SELECT below.id, below.status FROM line CROSS JOIN runs AS below
            WHERE below.parent = line.id
    ) SELECT 1 FROM line WHERE line.status = 'dead'
))
ORDER BY ended, pk LIMIT :limit
"""
"""Exclude runs whose ancestors may still have to compensate them and, unless `:dead`, dead letters
with their ancestors.
"""
PRUNABLE = f"SELECT ended, pk FROM runs WHERE (ended, pk) > (:last_ended, :last_pk) AND {_PRUNABLE}"
PRUNABLE_BY_ID = (
    f"SELECT ended, pk FROM runs WHERE id IN (SELECT value FROM json_each(:ids)) AND {_PRUNABLE}"
)
ACKED = """
SELECT ended, pk FROM runs WHERE workflow = '' AND status = 'done' AND ended < :before
    ORDER BY ended LIMIT :limit
"""
PRUNE = (
    "DELETE FROM entries WHERE run = ?",
    "DELETE FROM messages WHERE run = ?",
    "DELETE FROM executions WHERE run = ?",
    FORGET_PROGRESS,
    "DELETE FROM runs WHERE pk = ?",
)

_THERE = "version > 0 AND (expires IS NULL OR expires > :now)"
"""Version 0 is the tombstone of a deleted session. It does not exist, whatever the clock says."""
_SESSION = f"FROM sessions WHERE space = :space AND id = :session AND {_THERE}"
SESSION = f"""
SELECT pk, iif({_THERE}, version, 0), tokens FROM sessions WHERE space = :space AND id = :session
"""
SESSION_WITH_FIELDS = f"""
SELECT id, version, updated, expires, field, value, last - first + 1
FROM (SELECT * {_SESSION}) LEFT JOIN session_fields ON session = pk ORDER BY field
"""
SESSIONS = f"""
SELECT id, version, updated, expires, field, value, last - first + 1 FROM (
    SELECT * FROM sessions
    WHERE space = :space AND (updated, id) < (:before_updated, :before_id)
      AND instr(id, :prefix) = 1 AND {_THERE}
    ORDER BY updated DESC, id DESC LIMIT :limit
) LEFT JOIN session_fields ON session = pk ORDER BY updated DESC, id DESC, field
"""
SESSION_ITEMS = f"""
SELECT value FROM session_items
WHERE session = (SELECT pk {_SESSION})
  AND field = :field
ORDER BY number DESC LIMIT :last
"""
SESSION_NEW = """
INSERT INTO sessions (space, id, version, updated, expires, tokens)
VALUES (:space, :session, :version, :now, :expires, :tokens) RETURNING pk
"""
SESSION_CHANGE = """
UPDATE sessions SET version = :version, updated = :now, tokens = :tokens,
    expires = CASE WHEN :extends THEN max(expires, :expires) ELSE :expires END WHERE pk = :pk
"""
SESSION_TOUCH = f"""
UPDATE sessions SET expires = max(expires, :expires)
    WHERE space = :space AND id = :session AND {_THERE}
"""
"""max() with NULL is NULL, so a session that never expires stays so."""
SESSION_SET = """
INSERT INTO session_fields (session, field, value) VALUES (:pk, :field, :value)
ON CONFLICT (session, field) DO UPDATE SET value = excluded.value, first = NULL, last = NULL
"""
SESSION_UNSET = "DELETE FROM session_fields WHERE session = :pk AND field = :field"
SESSION_UNLIST = "DELETE FROM session_items WHERE session = :pk AND field = :field"
SESSION_LENGTHEN = """
INSERT INTO session_fields (session, field, first, last) VALUES (:pk, :field, 1, :count)
ON CONFLICT (session, field) DO UPDATE SET value = NULL, first = coalesce(first, 1),
    last = coalesce(last, 0) + :count
RETURNING first, last
"""
SESSION_ADD = "INSERT INTO session_items (session, field, number, value) VALUES (?, ?, ?, ?)"
SESSION_SHORTEN = "UPDATE session_fields SET first = :first WHERE session = :pk AND field = :field"
SESSION_CUT = "DELETE FROM session_items WHERE session = :pk AND field = :field AND number < :first"
SESSIONS_EXPIRED = "SELECT pk FROM sessions WHERE expires < ? ORDER BY expires LIMIT ?"
SESSION_FORGET = (
    "DELETE FROM session_items WHERE session = ?",
    "DELETE FROM session_fields WHERE session = ?",
    "DELETE FROM sessions WHERE pk = ?",
)

JOURNAL = (
    f"SELECT {', '.join(Entry._fields)} FROM entries WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
)
LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM entries WHERE run = ?"
DONE = """
SELECT key, value FROM entries INDEXED BY entries_done
WHERE kind = 'done' AND run = ? AND key IN (SELECT value FROM json_each(?)) ORDER BY key, seq
"""
HISTORY = (
    f"SELECT {', '.join(Entry._fields)} FROM entries WHERE run = ? AND kind <> 'done' ORDER BY seq"
)
DONE_COUNT = "SELECT count(*) FROM entries INDEXED BY entries_done WHERE kind = 'done' AND run = ?"
MESSAGES = (
    "SELECT number, name, id, value, at FROM messages WHERE run = ? AND number > ? ORDER BY number"
)
WORKERS = f"""
SELECT {", ".join(WorkerRow._fields[:-1])}, (SELECT count(*) FROM runs WHERE worker = workers.id)
    FROM workers ORDER BY started
"""

RUNS = f"""
SELECT {_RUN} FROM runs
WHERE (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses))
       OR (:delayed AND status = 'queued' AND ready = 0 AND due > :now))
  AND (:workflow IS NULL OR workflow = :workflow)
  AND (:queue IS NULL OR queue = :queue)
  AND (:prefix IS NULL OR instr(id, :prefix) = 1)
  AND (:items IS NULL OR (workflow = '') = :items)
  AND (:undoing IS NULL OR (undoing IS NOT NULL) = :undoing)
  AND (:parent IS NULL OR parent = :parent)
  AND (:waiting_for IS NULL OR (ended IS NULL AND instr(waits,
      char(10) || :waiting_for || char(10)) > 0))
  AND (:created_before IS NULL OR created < :created_before)
  AND (:created_after IS NULL OR created >= :created_after)
  AND (:ended_after IS NULL OR ended >= :ended_after)
  -- not OR: each page begins where the last one ended, without a look at what is before it
  AND pk < coalesce(:before_pk, 9223372036854775807)
ORDER BY pk DESC LIMIT :limit
"""

CANCELS = "SELECT id, cancel FROM runs WHERE worker = ? AND cancel IS NOT NULL"
