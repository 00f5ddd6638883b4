-- Keep the worker, start and end of each execution of a run.

-- name: ended_at
coalesce(released, ended)

-- name: left_as
coalesce(released_as, status)

-- name: KEEP_EXECUTION
INSERT INTO executions (run, fence, worker, host, pid, began, ended, status, reason)
SELECT pk, abs(fence), claimed_by, claimed_host, claimed_pid, claimed, {ended_at}, {left_as},
    reason
FROM runs WHERE pk = ?

-- name: EXECUTIONS
SELECT {execution} FROM executions WHERE run = :run
UNION ALL
SELECT abs(fence), claimed_by, claimed_host, claimed_pid, claimed,
    CASE WHEN worker IS NULL THEN {ended_at} END, {left_as}, reason
FROM runs WHERE pk = :run AND claimed IS NOT NULL
ORDER BY 1
