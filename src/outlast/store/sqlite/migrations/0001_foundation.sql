CREATE TABLE counters (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counters (name, value) VALUES ('fence', 0);

CREATE TABLE runs (
    pk            INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, even after pruning
    id            TEXT    NOT NULL UNIQUE,
    workflow      TEXT    NOT NULL,
    args          TEXT    NOT NULL,
    queue         TEXT    NOT NULL,
    priority      INTEGER NOT NULL,
    status        TEXT    NOT NULL,
    fence         INTEGER NOT NULL,                   -- negative: void, nobody holds it
    worker        TEXT,
    token         TEXT,                               -- of the submission or claim that made this fence
    seed          TEXT    NOT NULL,                   -- where the run's uuid() and random() come from
    parent        TEXT,
    created       REAL    NOT NULL,
    started       REAL,                               -- the first claim
    due           REAL    NOT NULL,
    timeout       REAL,
    deadline      REAL,
    ended         REAL,
    interrupted   REAL,                               -- set while it goes before new work
    deaths        INTEGER NOT NULL DEFAULT 0,
    interruptions INTEGER NOT NULL DEFAULT 0,
    waits         TEXT    NOT NULL DEFAULT '',
    cancel        TEXT,
    reason        TEXT,
    failed_at     INTEGER,                            -- the entry that ended it, from which a retry starts
    value         TEXT,
    error         TEXT
);

CREATE INDEX runs_claimable ON runs (queue, priority DESC, coalesce(interrupted, 1e12), pk)
    WHERE status IN ('queued', 'waiting');
CREATE INDEX runs_held ON runs (worker) WHERE worker IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended) WHERE ended IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

CREATE TABLE entries (
    run     INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    fence   INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    at      REAL    NOT NULL,
    args    TEXT,
    value   TEXT,
    error   TEXT,
    seconds REAL,
    attempt INTEGER,
    asked   INTEGER,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;

CREATE TABLE messages (
    run    INTEGER NOT NULL,
    number INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    id     TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    at     REAL    NOT NULL,
    PRIMARY KEY (run, number),
    UNIQUE (run, name, id)
) WITHOUT ROWID;

CREATE TABLE workers (
    id          TEXT    PRIMARY KEY,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    started     REAL    NOT NULL,
    lease_until REAL    NOT NULL,
    draining    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE sessions (
    id      TEXT    PRIMARY KEY,
    version INTEGER NOT NULL,
    updated REAL    NOT NULL,
    expires REAL,
    token   TEXT    NOT NULL                          -- of the last change
) WITHOUT ROWID;

CREATE TABLE session_fields (
    session TEXT NOT NULL,
    field   TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (session, field)
) WITHOUT ROWID;
