-- Write and read a run's journal, and the progress of its steps.

-- name: RECORD
INSERT INTO entries (run, seq, fence, kind, key, at, args, value, error, seconds, attempt, asked,
    cost)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM runs WHERE pk = ? AND fence = ? AND fence > 0
ON CONFLICT (run, seq) DO NOTHING

-- name: RECORDED
SELECT value FROM entries WHERE run = ? AND seq = ? AND fence = ?

-- name: SEQ_TAKEN
SELECT 1 FROM entries WHERE run = ? AND seq = ?

-- name: APPEND
INSERT INTO entries (run, seq, fence, kind, key, at, value)
SELECT :run, coalesce(max(seq), 0) + 1, :fence, :kind, :key, :now, :value FROM entries
    WHERE run = :run
RETURNING seq

-- name: MARK
UPDATE runs SET mark = ? WHERE pk = ?

-- name: JOURNAL
SELECT {entry} FROM entries WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: LAST_SEQ
SELECT coalesce(max(seq), 0) FROM entries WHERE run = ?

-- name: DONE
SELECT key, value FROM entries INDEXED BY entries_done
WHERE kind = 'done' AND run = ? AND key IN (SELECT value FROM json_each(?)) ORDER BY key, seq

-- name: HISTORY
SELECT {entry} FROM entries WHERE run = ? AND kind <> 'done' ORDER BY seq

-- name: DONE_COUNT
SELECT count(*) FROM entries INDEXED BY entries_done WHERE kind = 'done' AND run = ?

-- name: SAVE
INSERT INTO progress (run, key, fence, attempt, value, at)
SELECT :run, :key, :fence, :attempt, :value, :now FROM runs
    WHERE pk = :run AND fence = :fence AND fence > 0
ON CONFLICT (run, key) DO UPDATE SET fence = excluded.fence, attempt = excluded.attempt,
    value = excluded.value, at = excluded.at
WHERE excluded.fence > progress.fence OR excluded.attempt >= progress.attempt

-- name: PROGRESS
SELECT key, value FROM progress WHERE run = ?

-- name: FORGET_PROGRESS
DELETE FROM progress WHERE run = ?

-- name: DECIDED
SELECT 1 FROM entries WHERE run = ? AND CASE WHEN kind = 'decision' AND json_valid(value)
    THEN json_extract(value, '$.token') = ? END

-- name: REQUEUED
SELECT 1 FROM entries INDEXED BY entries_again
WHERE run = ? AND kind IN ('retry', 'resume') AND kind = ?
    AND CASE WHEN json_valid(value) THEN json_extract(value, '$.token') = ? END
