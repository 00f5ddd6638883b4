ALTER TABLE workers ADD COLUMN asked TEXT;                     -- why somebody wants it to drain

ALTER TABLE runs ADD COLUMN left_by TEXT;                      -- the draining worker that was interrupted at it
ALTER TABLE runs ADD COLUMN left_at REAL;                      -- both until it is claimed again

CREATE TABLE drains (
    number INTEGER PRIMARY KEY AUTOINCREMENT,                  -- newer ones have greater ones, whatever the clock did
    worker TEXT    NOT NULL UNIQUE,
    host   TEXT    NOT NULL,
    pid    INTEGER NOT NULL,
    reason TEXT    NOT NULL,
    began  REAL    NOT NULL,
    ended  REAL,
    held   INTEGER NOT NULL,                                   -- when it began, after what had not begun was given back
    report TEXT,
    swept  INTEGER NOT NULL DEFAULT 0                          -- closed by a sweep: the worker's own report came too late
);

CREATE TABLE recoveries (
    drain   TEXT    NOT NULL,
    run     INTEGER NOT NULL,
    seconds REAL    NOT NULL,                                  -- from being left to being claimed
    by      TEXT    NOT NULL,
    PRIMARY KEY (drain, run)
) WITHOUT ROWID;

CREATE TABLE durations (
    workflow TEXT    NOT NULL,
    step     TEXT    NOT NULL,
    number   INTEGER NOT NULL,                                 -- counts on; the last ones are kept
    seconds  REAL    NOT NULL,
    PRIMARY KEY (workflow, step, number)
) WITHOUT ROWID;

CREATE INDEX entries_done ON entries (run, key) WHERE kind = 'done';
CREATE INDEX entries_again ON entries (run) WHERE kind IN ('retry', 'resume');

CREATE TABLE progress (
    run     INTEGER NOT NULL,
    key     TEXT    NOT NULL,                                  -- of a step that has not ended
    fence   INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    value   TEXT    NOT NULL,
    at      REAL    NOT NULL,
    PRIMARY KEY (run, key)
) WITHOUT ROWID;
