-- End runs, park them and release them.

-- name: WAIT
UPDATE runs SET waits = ? WHERE pk = ? AND fence = ? AND fence > 0

-- name: SETTLE
UPDATE runs SET status = :status, fence = -abs(fence), worker = NULL, value = :value,
    error = :error, reason = :reason, failed_at = :failed_at, interrupted = NULL, waits = '',
    deaths_in_a_row = 0, interruptions_in_a_row = 0,
    undoing = CASE WHEN :status = 'parked' THEN undoing END,
    -- The run's clock stands still from now on.
    due = CASE WHEN :status = 'parked' THEN :now ELSE due END,
    released = CASE WHEN :status = 'parked' THEN :now END,
    released_as = CASE WHEN :status = 'parked' THEN 'parked' END,
    ended = CASE WHEN :status = 'parked' THEN NULL ELSE :now END
WHERE pk = :run AND fence = :fence AND fence > 0
  AND NOT (:unless_cancelled AND :status = 'parked' AND cancel IS NOT NULL AND undoing IS NULL)
RETURNING queue, parent

-- name: SETTLED
SELECT 1 FROM runs
WHERE pk = ? AND fence = ? AND fence < 0 AND status IN ('done', 'failed', 'cancelled', 'parked')
  -- Otherwise it was a dead letter that was cancelled later.
  AND deaths_in_a_row = 0 AND interruptions_in_a_row = 0

-- name: progress
(EXISTS (SELECT 1 FROM entries
         WHERE run = pk AND seq > mark AND entries.fence = runs.fence
             AND kind IN ('step', 'attempt', 'inner', 'child', 'session', 'done'))
 OR EXISTS (SELECT 1 FROM progress WHERE run = pk AND progress.fence = runs.fence))

-- name: HELD
SELECT {run}, {progress} FROM runs WHERE pk = ? AND fence = ? AND fence > 0

-- name: HELD_BY
SELECT {run}, {progress} FROM runs WHERE worker = ? ORDER BY pk

-- name: HOLDS
SELECT pk, fence, id FROM runs WHERE worker = ?

-- name: GIVE_BACK
UPDATE runs SET status = :status, fence = -abs(fence), worker = NULL, due = :due, ready = :ready,
    reason = :reason, waits = :waits, released = :now, released_as = :status,
    interrupted = :interrupted, deaths = :deaths, interruptions = :interruptions,
    failures = :failures, deaths_in_a_row = :deaths_in_a_row,
    interruptions_in_a_row = :interruptions_in_a_row,
    ended = CASE WHEN :status IN ('dead', 'cancelled') THEN :now END
WHERE pk = :run

-- name: GIVE_BACK_ALL_BUT
UPDATE runs SET
    status = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN 'cancelled' ELSE 'queued' END,
    ended = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN :now END,
    reason = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN cancel ELSE :reason END,
    ready = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN 0
                 WHEN deaths_in_a_row >= {suspect_deaths} AND NOT {progress} THEN 2
                 ELSE 1 END,
    fence = -abs(fence), worker = NULL, due = :now, released = :now,
    released_as = CASE WHEN workflow = '' AND cancel IS NOT NULL THEN 'cancelled'
        ELSE 'queued' END,
    deaths_in_a_row = CASE WHEN deaths_in_a_row > 0 AND NOT {progress}
        THEN deaths_in_a_row ELSE 0 END,
    interruptions_in_a_row = CASE WHEN interruptions_in_a_row > 0 AND NOT {progress}
        THEN interruptions_in_a_row ELSE 0 END
WHERE worker = :worker AND fence NOT IN (SELECT value FROM json_each(:keep))
RETURNING pk, id, queue, parent, status

-- name: LEFT
UPDATE runs SET left_by = ?, left_at = ? WHERE pk = ?

-- name: RELEASED_EARLIER
SELECT status FROM runs WHERE pk = ? AND fence = ? AND fence < 0
  AND (status IN ('queued', 'waiting', 'dead')
       OR (status = 'cancelled' AND (workflow = '' OR deaths_in_a_row > 0
           OR interruptions_in_a_row > 0)))

-- name: NEWS
SELECT EXISTS (SELECT 1 FROM messages WHERE run = :run AND number > :seen
    AND name IN (SELECT value FROM json_each(:waits)))
    OR (SELECT count(*) FROM runs WHERE id IN (SELECT value FROM json_each(:children))
        AND ended IS NULL)
       < json_array_length(:children)

-- name: ACK
UPDATE runs SET status = 'done', fence = -fence, worker = NULL, ended = ?
    WHERE pk = ? AND fence = ? AND fence > 0

-- name: ACKED_BY
SELECT 1 FROM runs WHERE pk = ? AND fence = ? AND fence < 0 AND status = 'done'
