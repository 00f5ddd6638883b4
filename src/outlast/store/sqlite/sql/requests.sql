-- Ask something of a run: messages, cancellation, retries, compensation.

-- name: MAILBOX
SELECT (SELECT coalesce(max(number), 0) FROM messages WHERE run = :run),
       EXISTS (SELECT 1 FROM messages WHERE run = :run AND name = :name AND id = :message)

-- name: SEND
INSERT INTO messages (run, number, name, id, value, at, by)
SELECT :run, coalesce(max(number), 0) + 1, :name, :message, :value, :now, :by FROM messages
    WHERE run = :run
ON CONFLICT (run, name, id) DO NOTHING

-- name: MESSAGES
SELECT number, name, id, value, at, by FROM messages WHERE run = ? AND number > ? ORDER BY number

-- name: WAKE
UPDATE runs SET due = min(due, :now), ready = {ready}
WHERE pk = :run AND status = 'waiting' AND instr(waits, char(10) || :name || char(10)) > 0

-- name: WAKE_PARENT
UPDATE runs SET due = min(due, :now), ready = {ready} WHERE id = :parent AND status = 'waiting'

-- name: CANCEL
UPDATE runs SET cancel = coalesce(cancel, :why), due = min(due, :now),
    ready = CASE WHEN status IN ('queued', 'waiting') THEN {ready} ELSE 0 END
WHERE pk = :run

-- name: CANCEL_AT_ONCE
UPDATE runs SET status = 'cancelled', cancel = coalesce(cancel, :why),
    reason = coalesce(cancel, :why), fence = -abs(fence), ended = :now, waits = '', ready = 0
WHERE pk = :run

-- name: REQUEUE
UPDATE runs SET status = 'queued', fence = -abs(fence), worker = NULL, due = :now, ready = 1,
    ended = NULL, value = NULL, error = NULL, reason = NULL, failed_at = NULL,
    token = :token, waits = '', deaths = 0, failures = 0,
    deaths_in_a_row = 0, interruptions_in_a_row = 0,
    -- The request may have come while the run was being parked.
    cancel = CASE WHEN :again THEN NULL ELSE cancel END,
    -- The run has a journal.
    lives = max(lives, 1),
    left_by = NULL, left_at = NULL,
    released = coalesce(released, ended), released_as = coalesce(released_as, status),
    deadline = CASE WHEN undoing IS NOT NULL THEN NULL
                    WHEN :again THEN :now + timeout
                    ELSE deadline + :now - coalesce(ended, due) END
WHERE pk = :run

-- name: UNDO
UPDATE runs SET undoing = :verdict, status = 'queued', fence = -abs(fence), worker = NULL,
    released = CASE WHEN worker IS NULL THEN coalesce(released, ended) ELSE :now END,
    released_as = CASE WHEN worker IS NULL THEN coalesce(released_as, status) ELSE 'undoing' END,
    due = :now, ready = 1, interrupted = coalesce(interrupted, :now),
    deaths_in_a_row = 0, interruptions_in_a_row = 0, waits = '', cancel = NULL, deadline = NULL,
    ended = NULL, error = NULL, reason = NULL, failed_at = NULL
WHERE pk = :run

-- name: UNDONE_BY
SELECT 1 FROM runs WHERE pk = ? AND fence = ? AND fence < 0 AND status = 'queued' AND undoing = ?
