ALTER TABLE sessions RENAME TO sessions_before;
ALTER TABLE session_fields RENAME TO session_fields_before;

CREATE TABLE sessions (
    pk      INTEGER PRIMARY KEY AUTOINCREMENT,                 -- a session that is there again has another
    space   TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    version INTEGER NOT NULL,
    updated REAL    NOT NULL,
    expires REAL,
    tokens  TEXT    NOT NULL,                                  -- of the last changes, with the version each made
    UNIQUE (space, id)
);
CREATE INDEX sessions_updated ON sessions (space, updated, id);
CREATE INDEX sessions_expires ON sessions (expires) WHERE expires IS NOT NULL;

CREATE TABLE session_fields (
    session INTEGER NOT NULL,
    field   TEXT    NOT NULL,
    value   TEXT,                                              -- NULL: it is a list
    first   INTEGER,                                           -- the numbers of a list's first and last item
    last    INTEGER,
    PRIMARY KEY (session, field),
    CHECK ((value IS NULL) = (first IS NOT NULL) AND (first IS NULL) = (last IS NULL))
) WITHOUT ROWID;

CREATE TABLE session_items (
    session INTEGER NOT NULL,
    field   TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    value   TEXT    NOT NULL,
    PRIMARY KEY (session, field, number)
) WITHOUT ROWID;

INSERT INTO sessions (space, id, version, updated, expires, tokens)
SELECT 'session', id, version, updated, expires, json_object(token, version) FROM sessions_before ORDER BY id;
INSERT INTO session_fields (session, field, value)
SELECT pk, field, value FROM session_fields_before JOIN sessions ON sessions.id = session_fields_before.session;
DROP TABLE session_fields_before;
DROP TABLE sessions_before;
