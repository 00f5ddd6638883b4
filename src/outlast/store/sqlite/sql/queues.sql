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

-- name: returned
(status = 'queued' AND (interrupted IS NOT NULL OR deaths_in_a_row > 0))

-- name: QUEUES
SELECT name, queued, running, coalesce(waiting, 0), coalesce(parked, 0), coalesce(dead, 0), oldest,
    coalesce(submitted, 0), coalesce(just_ended, 0), depth_max, concurrency_max,
    coalesce(returned, 0), returned_since, coalesce(undone, 0), coalesce(stuck, 0),
    coalesce(delayed, 0), key_concurrency_max, key_starts_max, key_period, paused <> 0
FROM queues LEFT JOIN (
    SELECT queue, sum(status = 'waiting') AS waiting, sum(status = 'parked') AS parked,
        sum(status = 'dead') AS dead,
        min(CASE WHEN status = 'queued' AND due <= :now THEN created END) AS oldest,
        sum(created > :now - 60) AS submitted, sum(ended > :now - 60) AS just_ended,
        sum({returned}) AS returned,
        min(CASE WHEN {returned} AND due > 0 AND due <= :now THEN due END) AS returned_since,
        sum(undoing IS NOT NULL AND status IN ('queued', 'running', 'waiting')) AS undone,
        sum(undoing IS NOT NULL AND status = 'parked') AS stuck,
        sum(status = 'queued' AND ready = 0 AND due > :now) AS delayed
    FROM runs GROUP BY queue
) ON queue = name
ORDER BY name
