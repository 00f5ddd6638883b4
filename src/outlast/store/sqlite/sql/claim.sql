-- Choose runs and give them to a worker.

-- name: NEXT_FENCE
UPDATE counters SET value = value + ? WHERE name = 'fence' RETURNING value

-- name: CLAIMED_BY_TOKEN
SELECT {run} FROM runs WHERE worker = ? AND token = ? ORDER BY fence

-- name: COME_DUE
-- The index of ready runs is partial. SQLite uses it only if a query repeats its exact condition.
UPDATE runs SET ready = {ready}
WHERE pk IN (SELECT pk FROM runs WHERE ready = 0 AND status IN ('queued', 'waiting') AND due <= ?
    ORDER BY due LIMIT 1000)

-- name: NEXT_DUE
SELECT min(due) FROM runs WHERE ready = 0 AND status IN ('queued', 'waiting')

-- name: QUEUE_NAMES
SELECT name FROM queues ORDER BY name

-- name: NEXT_WORKFLOW
SELECT workflow FROM runs
WHERE ready > 0 AND ready = {level} AND queue = ? AND workflow > ? ORDER BY workflow LIMIT 1

-- name: READY_ITEM
SELECT 1 FROM runs WHERE ready > 0 AND ready = {level} AND queue = ? AND workflow = '' LIMIT 1

-- name: abandoned_at
CASE WHEN undoing IS NULL AND cancel IS NULL AND started IS NOT NULL
    THEN coalesce(turn, due) + abandon_after END

-- name: CLAIMABLE
SELECT -priority, coalesce(interrupted + 0.0, 1e12), coalesce(turn, due) + 0.0, pk, queue,
    status, parent, {abandoned_at}, claimed IS NOT NULL, CASE WHEN undoing IS NULL THEN key END, key
    FROM runs
WHERE ready > 0 AND ready = {level} AND queue = ? AND workflow = ?
    AND (interrupted IS NULL) = {new}
ORDER BY priority DESC, interrupted, coalesce(turn, due), pk LIMIT ?

-- name: CLAIMABLE_CHILDREN
SELECT -priority, coalesce(interrupted + 0.0, 1e12), coalesce(turn, due) + 0.0, pk, queue,
    status, parent, {abandoned_at}, claimed IS NOT NULL, CASE WHEN undoing IS NULL THEN key END, key
    FROM runs
WHERE ready > 0 AND parent IS NOT NULL AND queue = ? AND workflow = ? AND ready = ?
    AND (interrupted IS NULL) = {new}
ORDER BY priority DESC, interrupted, coalesce(turn, due), pk LIMIT ?

-- name: CLAIMABLE_BY_ID
SELECT -priority, coalesce(interrupted + 0.0, 1e12), due + 0.0, pk, queue, status, parent, NULL,
    claimed IS NOT NULL, CASE WHEN undoing IS NULL THEN key END, key FROM runs
WHERE id IN (SELECT value FROM json_each(?)) AND status IN ('queued', 'waiting')
    AND (ready <> 0 OR due <= ?)
ORDER BY pk LIMIT ?

-- name: RECOVERED
INSERT OR REPLACE INTO recoveries (drain, run, seconds, by)
SELECT left_by, pk, max(:now - left_at, 0.0), :by FROM runs
WHERE pk IN (SELECT value FROM json_each(:runs)) AND left_by IN (SELECT worker FROM drains)

-- name: CLAIM
UPDATE runs SET status = 'running', ready = 0, turn = NULL, left_by = NULL, left_at = NULL, fence = ?,
    worker = ?, token = ?, waits = '', lives = lives + 1,
    claimed_by = ?, claimed_host = ?, claimed_pid = ?, claimed = ?,
    released = NULL, released_as = NULL,
    started = coalesce(started, ?), deadline = CASE WHEN undoing IS NULL
        THEN coalesce(deadline, ? + timeout) END
WHERE pk = ?

-- name: ABLE
SELECT id, lease_until, queues, workflows FROM workers WHERE NOT draining AND started <= ?
