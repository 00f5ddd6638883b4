-- Keep the reports of drains, and how soon their runs were recovered.

-- name: DRAIN_OPEN
INSERT INTO drains (worker, host, pid, reason, began, held)
SELECT id, host, pid, :reason, :now, (SELECT count(*) FROM runs WHERE worker = :worker) FROM workers
    WHERE id = :worker
ON CONFLICT (worker) DO NOTHING

-- name: DRAIN_REPORT
INSERT INTO drains (worker, host, pid, reason, began, ended, held, report)
VALUES (:worker, '', 0, '', :now, :now, 0, :report)
ON CONFLICT (worker) DO UPDATE SET ended = excluded.ended, report = excluded.report WHERE NOT swept

-- name: DRAIN_SWEPT
UPDATE drains SET ended = :now, report = :report, swept = 1 WHERE worker = :worker AND ended IS NULL

-- name: DRAINS_TOO_MANY
DELETE FROM drains WHERE number < (SELECT number FROM drains ORDER BY number DESC
    LIMIT 1 OFFSET :kept - 1) RETURNING worker

-- name: DRAIN_FORGET_RECOVERIES
DELETE FROM recoveries WHERE drain = ?

-- name: DRAIN_FORGET_DRAINS
DELETE FROM drains WHERE worker = ?

-- name: DRAINS
SELECT {drain} FROM drains ORDER BY number DESC LIMIT ?

-- name: RECOVERIES
SELECT drain, seconds FROM recoveries WHERE drain IN (SELECT value FROM json_each(?))
    ORDER BY seconds
