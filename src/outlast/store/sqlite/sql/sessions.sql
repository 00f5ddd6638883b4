-- Change, read and delete sessions.

-- name: there
-- Version 0 is the tombstone of a deleted session. It does not exist, whatever the clock says.
version > 0 AND (expires IS NULL OR expires > :now)

-- name: session
FROM sessions WHERE space = :space AND id = :session AND {there}

-- name: session_columns
id, version, updated, expires, owner

-- name: field_columns
field, iif(:values, value, iif(value IS NULL, NULL, '')), last - first + 1

-- name: first_names
-- A list of sessions names only some fields and some lists of each.
LEFT JOIN session_fields ON session = pk AND (
    field IN (SELECT field FROM session_fields WHERE session = pk AND value IS NOT NULL
        ORDER BY field LIMIT {names_max})
    OR field IN (SELECT field FROM session_fields WHERE session = pk AND value IS NULL
        ORDER BY field LIMIT {names_max})
)

-- name: id_in_range
-- A range without an end has a NULL. Every text is less than the empty blob, and a constant end
-- lets the index bound the search.
id {above} :low AND id < coalesce(:high, x'')

-- name: SESSION
SELECT {session_columns}, {field_columns}
FROM (SELECT * {session}) LEFT JOIN session_fields ON session = pk ORDER BY field

-- name: SESSION_NAMED
SELECT {session_columns}, {field_columns}
FROM (SELECT * {session}) LEFT JOIN session_fields
    ON session = pk AND field IN (SELECT value FROM json_each(:names)) ORDER BY field

-- name: SESSION_FIELDS
SELECT {session_columns}, field, value, NULL FROM (SELECT * {session}) LEFT JOIN (
    SELECT field, value FROM session_fields WHERE session = (SELECT pk {session})
        AND field {above} :low AND field < coalesce(:high, x'') AND value IS NOT NULL
    ORDER BY field {order} LIMIT :limit
) ORDER BY field {order}

-- name: SESSION_ITEMS
SELECT i.value
FROM session_fields f JOIN session_items i ON i.session = f.session AND i.field = f.field
    AND i.number >= iif(:start < 0, max(f.first, f.last + 1 + :start), f.first + :start)
    AND i.number <= CASE WHEN :stop IS NULL THEN f.last
        WHEN :stop < 0 THEN f.last + :stop ELSE f.first + :stop - 1 END
WHERE f.session = (SELECT pk {session}) AND f.field = :field
ORDER BY i.number

-- name: SESSIONS
SELECT {session_columns}, {field_columns} FROM (
    SELECT * FROM sessions
    WHERE space = :space AND (updated, id) < (:before_updated, :before_id) AND {there}
    ORDER BY updated DESC, id DESC LIMIT :limit
) {first_names} ORDER BY updated DESC, id DESC, field

-- name: SESSIONS_WITH_PREFIX
-- It reads the sessions of the range by their ids and sorts them: `+` keeps it off the other index.
SELECT {session_columns}, {field_columns} FROM (
    SELECT * FROM sessions
    WHERE space = :space AND {id_in_range} AND {there}
        AND (+updated, id) < (:before_updated, :before_id)
    ORDER BY +updated DESC, id DESC LIMIT :limit
) {first_names} ORDER BY updated DESC, id DESC, field

-- name: SESSIONS_BY_ID
SELECT {session_columns}, {field_columns} FROM (
    SELECT * FROM sessions WHERE space = :space AND {id_in_range} AND {there}
    ORDER BY id LIMIT :limit
) {first_names} ORDER BY id, field

-- name: SESSION_FOUND
SELECT pk, iif({there}, version, 0), tokens, owner, size
FROM sessions WHERE space = :space AND id = :session

-- name: SESSION_TOUCHED
SELECT field, first, last FROM session_fields
WHERE session = :pk AND field IN (SELECT value FROM json_each(:names))

-- name: SESSION_NEWEST
SELECT value FROM session_items
WHERE session = :pk AND field = :field AND number >= :first ORDER BY number

-- name: SESSION_NEW
INSERT INTO sessions (space, id, version, updated, expires, owner, size, tokens)
VALUES (:space, :session, :version, :now, :expires, :owner, :size, :tokens) RETURNING pk

-- name: SESSION_CHANGE
UPDATE sessions SET version = :version, updated = :now, owner = :owner, size = :size,
    tokens = :tokens, expires = CASE WHEN :extends THEN max(expires, :expires) ELSE :expires END
WHERE pk = :pk

-- name: SESSION_EXTEND
-- max() with NULL is NULL, so a session that never expires stays so.
UPDATE sessions SET expires = max(expires, :expires)
    WHERE space = :space AND id = :session AND {there}

-- name: SESSION_SET
INSERT INTO session_fields (session, field, value) VALUES (:pk, :field, :value)
ON CONFLICT (session, field) DO UPDATE SET value = excluded.value, first = NULL, last = NULL

-- name: SESSION_SET_LIST
INSERT INTO session_fields (session, field, first, last) VALUES (:pk, :field, :first, :last)
ON CONFLICT (session, field) DO UPDATE
    SET value = NULL, first = excluded.first, last = excluded.last

-- name: SESSION_UNSET
DELETE FROM session_fields WHERE session = :pk AND field = :field

-- name: SESSION_UNLIST
DELETE FROM session_items WHERE session = :pk AND field = :field

-- name: SESSION_ADD
INSERT INTO session_items (session, field, number, value) VALUES (?, ?, ?, ?)

-- name: SESSION_REPLACE
UPDATE session_items SET value = :value WHERE session = :pk AND field = :field AND number = :number

-- name: SESSION_CUT_OLDEST
DELETE FROM session_items WHERE session = :pk AND field = :field AND number < :first

-- name: SESSION_CUT_NEWEST
DELETE FROM session_items WHERE session = :pk AND field = :field AND number > :last

-- name: SESSIONS_EXPIRED
SELECT pk FROM sessions WHERE expires < ? ORDER BY expires LIMIT ?

-- name: SESSION_FORGET_ITEMS
DELETE FROM session_items WHERE session = ?

-- name: SESSION_FORGET_FIELDS
DELETE FROM session_fields WHERE session = ?

-- name: SESSION_FORGET_SESSIONS
DELETE FROM sessions WHERE pk = ?
