-- Count the runs of each queue, and keep its limits.

-- name: QUEUE
SELECT queued, running, depth_max, concurrency_max, key_concurrency_max, key_starts_max, key_period,
    paused FROM queues WHERE name = ?

-- name: DEPTH
SELECT queued, (SELECT count(*) FROM runs INDEXED BY runs_delayed
    WHERE ready = 0 AND status = 'queued' AND queue = :queue AND due > :now)
FROM queues WHERE name = :queue

-- name: MOVED
INSERT INTO queues (name, queued, running) VALUES (:name, :queued, :running)
ON CONFLICT (name) DO UPDATE SET queued = queued + excluded.queued,
    running = running + excluded.running

-- name: LISTED
INSERT INTO queues (name) VALUES (?)

-- name: LIMIT
INSERT INTO queues (name, depth_max, concurrency_max, key_concurrency_max, key_starts_max,
    key_period, paused)
VALUES (:queue, :depth_max, :concurrency_max, :key_concurrency_max, :key_starts_max, :key_period,
    :paused)
ON CONFLICT (name) DO UPDATE SET depth_max = excluded.depth_max,
    concurrency_max = excluded.concurrency_max,
    key_concurrency_max = excluded.key_concurrency_max,
    key_starts_max = excluded.key_starts_max, key_period = excluded.key_period,
    paused = excluded.paused

-- name: QUEUES
-- Each number has an index of the runs that it counts, so runs that are done cost nothing here. The
-- first run that was submitted is the one with the lowest pk, which an index has without its row.
WITH waiting (pk) AS (SELECT pk FROM runs INDEXED BY runs_waiting WHERE status = 'waiting'),
counted (queue, what, number, at) AS (
    SELECT queue, 'waiting', count(*), NULL FROM runs INDEXED BY runs_waiting
        WHERE status = 'waiting' GROUP BY queue
    UNION ALL SELECT queue, 'parked', count(*), NULL FROM runs INDEXED BY runs_stopped
        WHERE status = 'parked' GROUP BY queue
    UNION ALL SELECT queue, 'stuck', count(*), NULL FROM runs INDEXED BY runs_undoing
        WHERE undoing IS NOT NULL AND status = 'parked' GROUP BY queue
    UNION ALL SELECT queue, 'undone', count(*), NULL FROM runs INDEXED BY runs_undoing
        WHERE undoing IS NOT NULL AND status IN ('queued', 'running', 'waiting') GROUP BY queue
    UNION ALL SELECT queue, 'dead', count(*), NULL FROM runs INDEXED BY runs_stopped
        WHERE status = 'dead' GROUP BY queue
    UNION ALL SELECT queue, 'delayed', count(*), NULL FROM runs INDEXED BY runs_delayed
        WHERE ready = 0 AND status = 'queued' AND due > :now GROUP BY queue
    UNION ALL SELECT queue, 'returned', count(*),
            min(CASE WHEN due > 0 AND due <= :now THEN due END)
        FROM runs INDEXED BY runs_returned
        WHERE status = 'queued' AND (interrupted IS NOT NULL OR deaths_in_a_row > 0) GROUP BY queue
    UNION ALL SELECT queue, 'oldest', 0, created FROM runs WHERE pk IN (
        SELECT min(pk) FROM runs INDEXED BY runs_ready WHERE ready > 0 AND ready = 1
            AND pk NOT IN waiting GROUP BY queue
        UNION ALL SELECT min(pk) FROM runs INDEXED BY runs_ready WHERE ready > 0 AND ready = 2
            AND pk NOT IN waiting GROUP BY queue
        UNION ALL SELECT min(pk) FROM runs INDEXED BY runs_gated
            WHERE key IS NOT NULL AND ready < 0 AND pk NOT IN waiting GROUP BY queue)
    UNION ALL SELECT queue, 'oldest', 0, min(created) FROM runs INDEXED BY runs_later
        WHERE ready = 0 AND status IN ('queued', 'waiting') AND due <= :now AND status = 'queued'
        GROUP BY queue
    UNION ALL SELECT queue, 'submitted', count(*), NULL FROM runs
        WHERE created > :now - 60 AND pk > coalesce(
            (SELECT pk FROM runs WHERE created <= :now - 60 ORDER BY pk DESC LIMIT 1), 0)
        GROUP BY queue
    UNION ALL SELECT queue, 'ended', count(*), NULL FROM runs INDEXED BY runs_ended
        WHERE ended IS NOT NULL AND ended > :now - 60 GROUP BY queue
)
SELECT name, queued, running,
    coalesce(sum(number) FILTER (WHERE what = 'waiting'), 0),
    coalesce(sum(number) FILTER (WHERE what = 'parked'), 0),
    coalesce(sum(number) FILTER (WHERE what = 'dead'), 0),
    min(at) FILTER (WHERE what = 'oldest'),
    coalesce(sum(number) FILTER (WHERE what = 'submitted'), 0),
    coalesce(sum(number) FILTER (WHERE what = 'ended'), 0),
    depth_max, concurrency_max,
    coalesce(sum(number) FILTER (WHERE what = 'returned'), 0),
    min(at) FILTER (WHERE what = 'returned'),
    coalesce(sum(number) FILTER (WHERE what = 'undone'), 0),
    coalesce(sum(number) FILTER (WHERE what = 'stuck'), 0),
    coalesce(sum(number) FILTER (WHERE what = 'delayed'), 0),
    key_concurrency_max, key_starts_max, key_period, paused <> 0
FROM queues LEFT JOIN counted ON queue = name
GROUP BY name ORDER BY name
