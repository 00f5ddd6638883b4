-- Change, read and delete sessions.

-- name: there
-- Version 0 is the tombstone of a deleted session. It does not exist, whatever the clock says.
version > 0 AND (expires IS NULL OR expires > :now)

-- name: session
FROM sessions WHERE space = :space AND id = :session AND {there}

-- name: SESSION
SELECT pk, iif({there}, version, 0), tokens FROM sessions WHERE space = :space AND id = :session

-- name: SESSION_WITH_FIELDS
SELECT id, version, updated, expires, field, value, last - first + 1
FROM (SELECT * {session}) LEFT JOIN session_fields ON session = pk ORDER BY field

-- name: SESSIONS
SELECT id, version, updated, expires, field, value, last - first + 1 FROM (
    SELECT * FROM sessions
    WHERE space = :space AND (updated, id) < (:before_updated, :before_id)
      AND instr(id, :prefix) = 1 AND {there}
    ORDER BY updated DESC, id DESC LIMIT :limit
) LEFT JOIN session_fields ON session = pk ORDER BY updated DESC, id DESC, field

-- name: SESSION_ITEMS
SELECT value FROM session_items
WHERE session = (SELECT pk {session})
  AND field = :field
ORDER BY number DESC LIMIT :last

-- name: SESSION_NEW
INSERT INTO sessions (space, id, version, updated, expires, tokens)
VALUES (:space, :session, :version, :now, :expires, :tokens) RETURNING pk

-- name: SESSION_CHANGE
UPDATE sessions SET version = :version, updated = :now, tokens = :tokens,
    expires = CASE WHEN :extends THEN max(expires, :expires) ELSE :expires END WHERE pk = :pk

-- name: SESSION_TOUCH
-- max() with NULL is NULL, so a session that never expires stays so.
UPDATE sessions SET expires = max(expires, :expires)
    WHERE space = :space AND id = :session AND {there}

-- name: SESSION_SET
INSERT INTO session_fields (session, field, value) VALUES (:pk, :field, :value)
ON CONFLICT (session, field) DO UPDATE SET value = excluded.value, first = NULL, last = NULL

-- name: SESSION_UNSET
DELETE FROM session_fields WHERE session = :pk AND field = :field

-- name: SESSION_UNLIST
DELETE FROM session_items WHERE session = :pk AND field = :field

-- name: SESSION_LENGTHEN
INSERT INTO session_fields (session, field, first, last) VALUES (:pk, :field, 1, :count)
ON CONFLICT (session, field) DO UPDATE SET value = NULL, first = coalesce(first, 1),
    last = coalesce(last, 0) + :count
RETURNING first, last

-- name: SESSION_ADD
INSERT INTO session_items (session, field, number, value) VALUES (?, ?, ?, ?)

-- name: SESSION_SHORTEN
UPDATE session_fields SET first = :first WHERE session = :pk AND field = :field

-- name: SESSION_CUT
DELETE FROM session_items WHERE session = :pk AND field = :field AND number < :first

-- name: SESSIONS_EXPIRED
SELECT pk FROM sessions WHERE expires < ? ORDER BY expires LIMIT ?

-- name: SESSION_FORGET_ITEMS
DELETE FROM session_items WHERE session = ?

-- name: SESSION_FORGET_FIELDS
DELETE FROM session_fields WHERE session = ?

-- name: SESSION_FORGET_SESSIONS
DELETE FROM sessions WHERE pk = ?
