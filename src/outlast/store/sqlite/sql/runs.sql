-- Read runs.

-- name: RUN_BY_ID
SELECT {run} FROM runs WHERE id = ?

-- name: RUN_BY_PK
SELECT {run} FROM runs WHERE pk = ?

-- name: RUN_BY_FENCE
SELECT {run} FROM runs WHERE pk = ? AND fence = ? AND fence > 0

-- name: RUNS_BY_ID
SELECT {run} FROM runs WHERE id IN (SELECT value FROM json_each(?))

-- name: wanted
(:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses))
       OR (:delayed AND status = 'queued' AND ready = 0 AND due > :now))
  AND (:workflow IS NULL OR workflow = :workflow)
  AND (:queue IS NULL OR queue = :queue)
  AND (:items IS NULL OR (workflow = '') = :items)
  AND (:undoing IS NULL OR (undoing IS NOT NULL) = :undoing)
  AND (:parent IS NULL OR parent = :parent)
  AND (:by IS NULL OR by = :by)
  AND (:key IS NULL OR key = :key)
  AND (:waiting_for IS NULL OR (ended IS NULL AND instr(waits,
      char(10) || :waiting_for || char(10)) > 0))
  AND (:created_before IS NULL OR created < :created_before)
  AND (:created_after IS NULL OR created >= :created_after)
  AND (:ended_after IS NULL OR ended >= :ended_after)

-- name: RUNS
SELECT {run} FROM runs
WHERE {wanted}
  -- not OR: each page begins where the last one ended, without a look at what is before it
  AND pk < coalesce(:before_pk, 9223372036854775807)
ORDER BY pk DESC LIMIT :limit

-- name: RUNS_WITH_KEY
SELECT {run} FROM runs INDEXED BY runs_key
WHERE key IS NOT NULL AND key = :key
  AND pk < coalesce(:before_pk, 9223372036854775807) AND {wanted}
ORDER BY pk DESC LIMIT :limit

-- name: RUNS_WITH_PREFIX
-- It finds the numbers by their ids, in the index alone, and reads these rows, newest first. `+`
-- keeps it from walking over all runs.
SELECT {run} FROM runs
WHERE pk IN (SELECT pk FROM runs WHERE {id_in_range})
  AND +pk < coalesce(:before_pk, 9223372036854775807) AND {wanted}
ORDER BY pk DESC LIMIT :limit

-- name: HAS_FENCE
SELECT 1 FROM runs WHERE pk = ? AND fence = ? AND fence > 0

-- name: HAS_DEALT
SELECT 1 FROM runs WHERE parent = :id UNION ALL
SELECT 1 FROM entries WHERE run = (SELECT pk FROM runs WHERE id = :id)
    AND kind IN ('intent', 'compensation', 'child') LIMIT 1

-- name: CANCELS
SELECT id, cancel FROM runs WHERE worker = ? AND cancel IS NOT NULL

-- name: ready
CASE WHEN deaths_in_a_row >= {suspect_deaths} THEN 2 ELSE 1 END
