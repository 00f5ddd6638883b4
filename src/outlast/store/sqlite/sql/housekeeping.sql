-- Sample durations, and delete what has ended.

-- name: MEASURED
INSERT INTO durations (workflow, step, number, seconds)
SELECT :workflow, :step, coalesce(max(number), 0) + 1, :seconds FROM durations
    WHERE workflow = :workflow AND step = :step

-- name: DURATIONS_TOO_MANY
DELETE FROM durations WHERE workflow = :workflow AND step = :step
    AND number <= (SELECT max(number) FROM durations
        WHERE workflow = :workflow AND step = :step) - :kept

-- name: MEASURED_PAIRS
SELECT DISTINCT workflow, step FROM durations ORDER BY workflow, step

-- name: DURATIONS
SELECT durations.workflow, step, seconds FROM json_each(?) AS pair CROSS JOIN durations
WHERE durations.workflow = json_extract(pair.value, '$[0]')
    AND step = json_extract(pair.value, '$[1]')
ORDER BY number

-- name: counts_as_start
-- It still counts against the rate of its key.
(key IS NOT NULL AND started > :now - (SELECT key_period FROM queues WHERE name = queue))

-- name: prunable
-- Exclude runs whose ancestors may still have to compensate them and, unless `:dead`, dead letters
-- with their ancestors.
ended < :before AND undoing IS NULL AND {counts_as_start} IS NOT TRUE AND (:dead OR status <> 'dead')
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

-- name: PRUNABLE
SELECT ended, pk FROM runs WHERE (ended, pk) > (:last_ended, :last_pk) AND {prunable}

-- name: PRUNABLE_BY_ID
SELECT ended, pk FROM runs WHERE id IN (SELECT value FROM json_each(:ids)) AND {prunable}

-- name: ACKED
SELECT ended, pk FROM runs WHERE workflow = '' AND status = 'done' AND ended < :before
    AND {counts_as_start} IS NOT TRUE ORDER BY ended LIMIT :limit

-- name: PRUNE_ENTRIES
DELETE FROM entries WHERE run = ?

-- name: PRUNE_MESSAGES
DELETE FROM messages WHERE run = ?

-- name: PRUNE_EXECUTIONS
DELETE FROM executions WHERE run = ?

-- name: PRUNE_RUNS
DELETE FROM runs WHERE pk = ?
