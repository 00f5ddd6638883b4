-- Keep the registered workers and their leases.

-- name: ENLIST
INSERT INTO workers (id, host, pid, started, lease_until, lease, renewed, queues, workflows,
    concurrency)
VALUES (:worker, :host, :pid, :now, :now + :lease, :lease, :now, :queues, :workflows, :concurrency)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, lease = excluded.lease,
    renewed = excluded.renewed, queues = excluded.queues, workflows = excluded.workflows,
    concurrency = excluded.concurrency

-- name: RENEW
UPDATE workers SET lease_until = :now + :lease, lease = :lease, renewed = :now,
    draining = max(draining, :draining) WHERE id = :worker

-- name: REGISTERED
SELECT draining, host, pid FROM workers WHERE id = ?

-- name: LEAVE
DELETE FROM workers WHERE id = ?

-- name: HOLDERS
SELECT id, lease_until, lease, draining, renewed FROM workers
UNION SELECT DISTINCT worker, NULL, NULL, 0, NULL FROM runs
WHERE worker IS NOT NULL AND worker NOT IN (SELECT id FROM workers)

-- name: WORKERS
SELECT {worker}, (SELECT count(*) FROM runs WHERE worker = workers.id)
    FROM workers ORDER BY started

-- name: DRAIN
UPDATE workers SET draining = 1 WHERE id = ?

-- name: ASK_DRAIN
UPDATE workers SET asked = coalesce(asked, :why) WHERE id = :worker

-- name: ASKED
SELECT asked FROM workers WHERE id = ?

-- name: CUT_LEASES
UPDATE workers SET lease_until = :now + lease WHERE lease_until > :now + lease + 1

-- name: PULSE
SELECT beat, awake, (SELECT coalesce(min(lease), 0) FROM workers) FROM pulse

-- name: BEAT
UPDATE pulse SET beat = ?, awake = ?
