"""Every SQL statement of the SQLite store. Values are always bound."""

from __future__ import annotations

from outlast.store.rows import Entry, RunRow, WorkerRow

_RUN = ", ".join(RunRow._fields)

NEXT_FENCE = "UPDATE counters SET value = value + ? WHERE name = 'fence' RETURNING value"

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

RUN_BY_ID = f"SELECT {_RUN} FROM runs WHERE id = ?"

SUBMIT = f"""
INSERT INTO runs (id, workflow, args, queue, priority, status, fence, worker, token, seed, parent,
                  created, started, due, timeout, deadline)
VALUES (:id, :workflow, :args, :queue, :priority, :status, :fence, :worker, :token, :seed, :parent,
        :now, :started, :due, :timeout, :deadline)
ON CONFLICT (id) DO NOTHING
RETURNING {_RUN}
"""

CLAIMED_BY_TOKEN = f"SELECT {_RUN} FROM runs WHERE worker = ? AND token = ? ORDER BY pk"

CLAIMABLE_BY_QUEUE = """
SELECT pk FROM runs
WHERE status IN ('queued', 'waiting') AND due <= :now
  AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
  AND (:workflows IS NULL OR workflow IN (SELECT value FROM json_each(:workflows)))
ORDER BY priority DESC, coalesce(interrupted, 1e12), pk
LIMIT :limit
"""

CLAIMABLE_BY_ID = """
SELECT pk FROM runs
WHERE id IN (SELECT value FROM json_each(:ids)) AND status IN ('queued', 'waiting')
ORDER BY pk LIMIT :limit
"""

CLAIM = f"""
UPDATE runs SET status = 'running', fence = :fence, worker = :worker, token = :token, waits = '',
                started = coalesce(started, :now), deadline = coalesce(deadline, :now + timeout)
WHERE pk = :pk AND status IN ('queued', 'waiting')
RETURNING {_RUN}
"""

RECORD = """
INSERT INTO entries (run, seq, fence, kind, key, at, args, value, error, seconds, attempt, asked)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM runs WHERE pk = ? AND fence = ? AND fence > 0
ON CONFLICT (run, seq) DO NOTHING
"""
RECORDED = "SELECT 1 FROM entries WHERE run = ? AND seq = ? AND fence = ?"

APPEND = """
INSERT INTO entries (run, seq, fence, kind, key, at, value)
SELECT :run, coalesce(max(seq), 0) + 1, :fence, :kind, '', :now, :value FROM entries WHERE run = :run
"""

WAIT = "UPDATE runs SET waits = ? WHERE pk = ? AND fence = ? AND fence > 0"

SETTLE = """
UPDATE runs SET status = :status, fence = -abs(fence), worker = NULL, value = :value, error = :error, reason = :reason,
                failed_at = :failed_at, interrupted = NULL, waits = '',
                due = CASE WHEN :status = 'parked' THEN :now ELSE due END,  -- since when its clock stands still
                ended = CASE WHEN :status = 'parked' THEN NULL ELSE :now END
WHERE pk = :run AND fence = :fence AND fence > 0
"""
SETTLED = """
SELECT 1 FROM runs
WHERE pk = ? AND fence = ? AND fence < 0 AND status IN ('done', 'failed', 'cancelled', 'parked')
"""

RELEASE = """
UPDATE runs SET status = CASE WHEN :waiting THEN 'waiting' ELSE 'queued' END, fence = -abs(fence), worker = NULL,
                due = :due, reason = :reason, interruptions = interruptions + :interrupted,
                interrupted = CASE WHEN :interrupted THEN coalesce(interrupted, :now) ELSE interrupted END
WHERE pk = :run AND fence = :fence AND fence > 0
"""

RELEASED = "SELECT 1 FROM runs WHERE pk = ? AND fence = ? AND fence < 0 AND status IN ('queued', 'waiting')"

SEND = """
INSERT INTO messages (run, number, name, id, value, at)
SELECT :run, coalesce(max(number), 0) + 1, :name, :message, :value, :now FROM messages WHERE run = :run
ON CONFLICT (run, name, id) DO NOTHING
"""
WAKE = "UPDATE runs SET due = min(due, :now) WHERE pk = :run AND status = 'waiting'"

CANCEL = "UPDATE runs SET cancel = coalesce(cancel, :why), due = min(due, :now) WHERE pk = :run"
CANCEL_AT_ONCE = """
UPDATE runs SET status = 'cancelled', cancel = :why, reason = :why, fence = -abs(fence), ended = :now, waits = ''
WHERE pk = :run
"""

REQUEUE = """
UPDATE runs SET status = 'queued', fence = -abs(fence), worker = NULL, due = :now, ended = NULL, reason = NULL,
                token = :token, value = NULL, error = NULL, failed_at = NULL, cancel = NULL, waits = '', deaths = 0,
                deadline = CASE WHEN :again THEN :now + timeout ELSE deadline + :now - due END
WHERE pk = :run
"""

REQUEUED = """
SELECT 1 FROM entries WHERE run = ? AND kind = ? AND json_extract(value, '$.token') = ?
"""

ENLIST = """
INSERT INTO workers (id, host, pid, started, lease_until) VALUES (:worker, :host, :pid, :now, :now + :lease)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until
"""
RENEW = "UPDATE workers SET lease_until = ? + ?, draining = ? WHERE id = ?"
ENLISTED = "SELECT 1 FROM workers WHERE id = ?"
LEAVE = "DELETE FROM workers WHERE id = ?"
HELD_BY = "SELECT pk, id, fence FROM runs WHERE worker = ?"
HOLDERS = """
SELECT DISTINCT runs.worker, workers.lease_until FROM runs LEFT JOIN workers ON workers.id = runs.worker
WHERE runs.worker IS NOT NULL
UNION SELECT id, lease_until FROM workers
"""
DIED = """
UPDATE runs SET status = 'queued', fence = -abs(fence), worker = NULL, due = :now, deaths = deaths + 1
WHERE pk = :run
"""

PRUNABLE = """
SELECT pk FROM runs
WHERE ended < ? AND (parent IS NULL OR NOT EXISTS
      (SELECT 1 FROM runs AS above WHERE above.id = runs.parent AND above.ended IS NULL))
ORDER BY ended LIMIT ?
"""
PRUNE = (
    "DELETE FROM entries WHERE run = ?",
    "DELETE FROM messages WHERE run = ?",
    "DELETE FROM runs WHERE pk = ?",
)

SESSION = (
    "SELECT version, updated, expires, token FROM sessions WHERE id = ? AND (expires IS NULL OR expires > ?)"
)
SESSION_WITH_FIELDS = """
SELECT version, updated, expires, field, value FROM sessions LEFT JOIN session_fields ON session = id
WHERE id = ? AND (expires IS NULL OR expires > ?) ORDER BY field
"""
SESSION_KEEP = """
INSERT INTO sessions (id, version, updated, expires, token) VALUES (:session, :version, :now, :expires, :token)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, updated = excluded.updated, expires = excluded.expires,
                               token = excluded.token
"""
SESSION_SET = """
INSERT INTO session_fields (session, field, value) VALUES (?, ?, ?)
ON CONFLICT (session, field) DO UPDATE SET value = excluded.value
"""
SESSION_UNSET = "DELETE FROM session_fields WHERE session = ? AND field = ?"
SESSION_FORGET = ("DELETE FROM session_fields WHERE session = ?", "DELETE FROM sessions WHERE id = ?")

JOURNAL = f"SELECT {', '.join(Entry._fields)} FROM entries WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
MESSAGES = "SELECT number, name, id, value, at FROM messages WHERE run = ? AND number > ? ORDER BY number"
WORKERS = f"SELECT {', '.join(WorkerRow._fields)} FROM workers ORDER BY started"

RUNS = f"""
SELECT {_RUN} FROM runs
WHERE (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:workflow IS NULL OR workflow = :workflow)
  AND (:queue IS NULL OR queue = :queue)
  AND (:parent IS NULL OR parent = :parent)
  AND (:waiting_for IS NULL OR (ended IS NULL AND instr(waits, char(10) || :waiting_for || char(10)) > 0))
  AND (:created_before IS NULL OR created < :created_before)
  AND (:created_after IS NULL OR created >= :created_after)
  AND (:before_pk IS NULL OR pk < :before_pk)
ORDER BY pk DESC LIMIT :limit
"""

CANCELS = "SELECT id, cancel FROM runs WHERE worker = ? AND cancel IS NOT NULL"
