-- Keep the deaths of workers, to tell a poison run from a kill storm.

-- name: RECORD_DEATH
INSERT OR IGNORE INTO worker_deaths (at, worker, run) VALUES (:now, :worker, :run)

-- name: DEATHS_TOO_MANY
DELETE FROM worker_deaths WHERE (at, worker, run) IN (
    SELECT at, worker, run FROM worker_deaths ORDER BY at DESC LIMIT -1 OFFSET :kept
)

-- name: OWN_DEATHS
SELECT at FROM worker_deaths WHERE run = :run ORDER BY at DESC LIMIT :limit

-- name: OTHER_DEATHS
SELECT count(CASE WHEN charged > 1 OR run = 0 THEN 1 END) + count(DISTINCT CASE WHEN charged = 1
    AND run <> 0 THEN run END)
FROM (
    SELECT count(*) AS charged, min(run) AS run FROM worker_deaths WHERE at > :since AND at <= :now
    GROUP BY at, worker HAVING NOT sum(run = :run)
)

-- name: FLEET_SIZE
SELECT count(*) FROM (SELECT id FROM workers UNION SELECT worker FROM worker_deaths WHERE at = :now)
