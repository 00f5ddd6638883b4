ALTER TABLE runs ADD COLUMN lives INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN ready INTEGER NOT NULL DEFAULT 0;  -- 1: claimable; 2: claimable, and a suspect
ALTER TABLE runs ADD COLUMN mark INTEGER NOT NULL DEFAULT 0;   -- seq of the last death or interruption
ALTER TABLE runs ADD COLUMN deaths_in_a_row INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN interruptions_in_a_row INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN attempts_max INTEGER NOT NULL DEFAULT 5;
ALTER TABLE runs ADD COLUMN interruptions_max INTEGER NOT NULL DEFAULT 100;

-- At least one, and a journal to read. A run that was cancelled before it started and retried has one too.
UPDATE runs SET lives = 2 WHERE started IS NOT NULL;
UPDATE runs SET lives = 1 WHERE started IS NULL AND pk IN (SELECT run FROM entries);

-- What is due already is made ready by the next claim.
DROP INDEX runs_claimable;
CREATE INDEX runs_ready ON runs (ready, queue, workflow, interrupted IS NULL, priority DESC, interrupted, due, pk)
    WHERE ready > 0;
CREATE INDEX runs_ready_children ON runs (queue, workflow, ready) WHERE ready > 0 AND parent IS NOT NULL;
CREATE INDEX runs_acked ON runs (ended) WHERE workflow = '' AND status = 'done';
CREATE INDEX runs_later ON runs (due) WHERE ready = 0 AND status IN ('queued', 'waiting');

ALTER TABLE workers ADD COLUMN lease REAL NOT NULL DEFAULT 30;
ALTER TABLE workers ADD COLUMN renewed REAL NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN queues TEXT NOT NULL DEFAULT '[]';
ALTER TABLE workers ADD COLUMN workflows TEXT NOT NULL DEFAULT '[]';
ALTER TABLE workers ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 0;

CREATE TABLE queues (
    name            TEXT    PRIMARY KEY,
    queued          INTEGER NOT NULL DEFAULT 0,
    running         INTEGER NOT NULL DEFAULT 0,                -- those without a parent
    depth_max       INTEGER,
    concurrency_max INTEGER
) WITHOUT ROWID;
INSERT INTO queues (name, queued, running)
SELECT queue, sum(status = 'queued'), sum(status = 'running' AND parent IS NULL) FROM runs GROUP BY queue;

CREATE TABLE pulse (
    beat  REAL NOT NULL,                                       -- the last sign of life of any worker
    awake REAL NOT NULL                                        -- since when they came without a gap
);
INSERT INTO pulse (beat, awake) VALUES (0, 0);
