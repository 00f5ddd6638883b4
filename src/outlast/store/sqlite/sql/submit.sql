-- Insert runs.

-- name: SUBMIT
INSERT INTO runs (id, workflow, args, queue, priority, status, fence, worker, token, seed, parent,
    attempts_max, interruptions_max, created, started, due, timeout, deadline, abandon_after, by, lives,
    claimed, claimed_by, claimed_host, claimed_pid)
VALUES (:id, :workflow, :args, :queue, :priority, 'running', :fence, :worker, :token, :seed,
    :parent, :attempts_max, :interruptions_max, :now, :now, :now, :timeout, :now + :timeout,
    :abandon_after, :by, 1, :now, :worker, :host, :pid)
ON CONFLICT (id) DO NOTHING
RETURNING {run}

-- name: REPLACE
UPDATE runs SET args = :args, token = :token, seed = :seed, priority = :priority, due = :due,
    timeout = :timeout, abandon_after = :abandon_after, by = :by, ready = :ready, turn = NULL
WHERE pk = :pk

-- name: ENQUEUE
INSERT INTO runs (id, workflow, args, queue, priority, status, fence, token, seed, parent,
    attempts_max, interruptions_max, created, due, timeout, abandon_after, by, key, ready)
VALUES (?, ?, ?, ?, ?, 'queued', 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
