-- Read runs.

-- name: RUN_BY_ID
SELECT {run} FROM runs WHERE id = ?

-- name: RUN_BY_PK
SELECT {run} FROM runs WHERE pk = ?

-- name: RUN_BY_FENCE
SELECT {run} FROM runs WHERE pk = ? AND fence = ? AND fence > 0

-- name: RUNS_BY_ID
SELECT {run} FROM runs WHERE id IN (SELECT value FROM json_each(?))

-- A query has the conditions that were asked for, and no others: an index or a partial index is
-- used only for a condition that stands there.
-- name: where_delayed
status = 'queued' AND ready = 0 AND due > :now

-- name: where_workflow
workflow = :workflow

-- name: where_queue
queue = :queue

-- name: where_items
(workflow = '') = :items

-- name: where_undoing
(undoing IS NOT NULL) = :undoing

-- name: where_parent
parent = :parent

-- name: where_by
by = :by

-- name: where_worker
worker = :worker

-- name: where_key
key IS NOT NULL AND key = :key

-- name: where_waiting_for
ended IS NULL AND waits <> '' AND instr(waits, char(10) || :waiting_for || char(10)) > 0

-- name: where_awaits_message
ended IS NULL AND waits <> ''

-- name: where_awaits_none
NOT (ended IS NULL AND waits <> '')

-- name: where_created_before
created < :created_before

-- name: where_created_after
created >= :created_after

-- name: where_ended_after
ended >= :ended_after

-- name: where_before_pk
pk < :before_pk

-- name: where_prefix
-- It finds the numbers by their ids, in the index alone.
pk IN (SELECT pk FROM runs WHERE {id_in_range})

-- name: RUNS
SELECT {run} FROM runs WHERE {where} ORDER BY pk DESC LIMIT :limit

-- name: ENDS
SELECT status, count(*), sum(deaths), sum(interruptions), min(ended) FROM (
    SELECT status, deaths, interruptions, ended FROM runs INDEXED BY runs_ended
    WHERE ended IS NOT NULL AND ended >= :after ORDER BY ended DESC LIMIT :limit
) GROUP BY status ORDER BY status

-- name: HAS_FENCE
SELECT 1 FROM runs WHERE pk = ? AND fence = ? AND fence > 0

-- name: MAY_NEED_COMPENSATION
SELECT 1 FROM runs WHERE parent = :id UNION ALL
SELECT 1 FROM entries WHERE run = (SELECT pk FROM runs WHERE id = :id)
    AND kind IN ('intent', 'compensation', 'child') LIMIT 1

-- name: CANCELS
SELECT id, cancel FROM runs WHERE worker = ? AND cancel IS NOT NULL

-- name: ready
CASE WHEN deaths_in_a_row >= {suspect_deaths} THEN 2 ELSE 1 END
