-- The tables are STRICT, and their CHECK constraints state what the code relies on. A program that
-- writes anything else gets an error, so the code that reads a row need not doubt it.
-- A CHECK with IN builds a temporary index for every statement, which costs an item a tenth of its
-- CPU. The table of runs compares instead.

CREATE TABLE counters (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO counters (name, value) VALUES ('fence', 0);

CREATE TABLE runs (
    pk            INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, even after pruning
    id            TEXT    NOT NULL UNIQUE,
    workflow      TEXT    NOT NULL,                   -- '' for a plain work item
    args          TEXT    NOT NULL,
    queue         TEXT    NOT NULL,
    priority      INTEGER NOT NULL,
    status        TEXT    NOT NULL CHECK (
        status = 'queued' OR status = 'running' OR status = 'done' OR status = 'waiting'
        OR status = 'parked' OR status = 'failed' OR status = 'cancelled' OR status = 'dead'),
    ready         INTEGER NOT NULL DEFAULT 0 CHECK (ready BETWEEN -3 AND 2),  -- see RunRow.ready
    key           TEXT,                               -- whose limits it counts against
    turn          REAL,                               -- see RunRow.turn
    fence         INTEGER NOT NULL,                   -- negative: void, no execution holds it
    worker        TEXT,
    -- of the submission or claim that made the fence
    token         TEXT,
    seed          TEXT    NOT NULL,                   -- the source of the run's uuid() and random()
    parent        TEXT,
    created       REAL    NOT NULL,
    started       REAL,                               -- the first claim
    due           REAL    NOT NULL,
    timeout       REAL,
    deadline      REAL,
    ended         REAL,
    interrupted   REAL,                               -- set while it goes before new work
    left_by       TEXT,                               -- the draining worker that released it
    left_at       REAL,                               -- both until it is claimed again
    claimed       REAL,                               -- the last claim
    claimed_by    TEXT,                               -- its worker, which `worker` forgets
    claimed_host  TEXT,
    claimed_pid   INTEGER,
    released      REAL,                               -- when its execution ended, but not the run
    released_as   TEXT,                               -- and the status in which it left the run
    waits         TEXT    NOT NULL DEFAULT '',
    cancel        TEXT,
    reason        TEXT,
    failed_at     INTEGER,                            -- the entry from which a retry starts
    value         TEXT,
    error         TEXT,
    undoing       TEXT,                               -- how it ends after its compensation, as JSON
    abandon_after REAL,                               -- seconds; see RunRow.abandon_after
    by            TEXT,                               -- who submitted it
    lives         INTEGER NOT NULL DEFAULT 0,
    mark          INTEGER NOT NULL DEFAULT 0,         -- seq of the last death or interruption
    deaths        INTEGER NOT NULL DEFAULT 0,
    interruptions INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,
    deaths_in_a_row        INTEGER NOT NULL DEFAULT 0,
    interruptions_in_a_row INTEGER NOT NULL DEFAULT 0,
    attempts_max           INTEGER NOT NULL,
    interruptions_max      INTEGER NOT NULL
) STRICT;

-- A claim seeks here once per queue, workflow, and interrupted or new: see claim_order.py.
CREATE INDEX runs_ready ON runs (ready, queue, workflow, interrupted IS NULL, priority DESC,
    interrupted, coalesce(turn, due), pk)
    WHERE ready > 0;
CREATE INDEX runs_ready_children ON runs (queue, workflow, ready)
    WHERE ready > 0 AND parent IS NOT NULL;
CREATE INDEX runs_later ON runs (due) WHERE ready = 0 AND status IN ('queued', 'waiting');
-- Counting delayed runs is frequent. The index has all columns of the count, or SQLite would read
-- each row.
CREATE INDEX runs_delayed ON runs (queue, status, ready, due) WHERE ready = 0 AND status = 'queued';
CREATE INDEX runs_held ON runs (worker) WHERE worker IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;
-- What a person looks for among many runs. Runs that need nobody cost nothing here.
CREATE INDEX runs_stopped ON runs (status)
    WHERE status = 'parked' OR status = 'dead' OR status = 'failed' OR status = 'cancelled';
CREATE INDEX runs_waiting ON runs (queue, status) WHERE status = 'waiting';
CREATE INDEX runs_undoing ON runs (queue) WHERE undoing IS NOT NULL;
CREATE INDEX runs_returned ON runs (queue)
    WHERE status = 'queued' AND (interrupted IS NOT NULL OR deaths_in_a_row > 0);
CREATE INDEX runs_asking ON runs (ended) WHERE ended IS NULL AND waits <> '';
CREATE INDEX runs_ended ON runs (ended) WHERE ended IS NOT NULL;
CREATE INDEX runs_acked ON runs (ended) WHERE workflow = '' AND status = 'done';

-- Runs with a key: those that take turns, those that have theirs, those that execute, and their
-- first starts. See keys.py. The first submission with a key adds a trigger: see KEY_RULE.
CREATE INDEX runs_gated ON runs (queue, key, workflow, ready, priority DESC, interrupted IS NULL,
    interrupted, due, pk)
    WHERE key IS NOT NULL AND ready < 0;
CREATE INDEX runs_heads ON runs (queue, key) WHERE key IS NOT NULL AND ready > 0;
CREATE INDEX runs_key_running ON runs (queue, key) WHERE key IS NOT NULL AND status = 'running';
CREATE INDEX runs_key ON runs (key, pk) WHERE key IS NOT NULL;
CREATE INDEX runs_key_started ON runs (queue, key, started)
    WHERE key IS NOT NULL AND started IS NOT NULL;

-- The keys that the next claim of their queue reviews, from a time on.
CREATE TABLE key_changes (
    queue TEXT NOT NULL,
    key   TEXT NOT NULL,
    at    REAL NOT NULL,
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX key_changes_at ON key_changes (queue, at);

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
    cost    TEXT,                                     -- a JSON object of numbers
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX entries_done ON entries (run, key) WHERE kind = 'done';
CREATE INDEX entries_again ON entries (run) WHERE kind IN ('retry', 'resume');

CREATE TABLE progress (
    run     INTEGER NOT NULL,
    key     TEXT    NOT NULL,                         -- of a step that has not ended
    fence   INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    value   TEXT    NOT NULL,
    at      REAL    NOT NULL,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;

-- What a run has published: see the command Publish.
CREATE TABLE streams (
    run   INTEGER NOT NULL,
    name  TEXT    NOT NULL,
    start INTEGER NOT NULL,                           -- where its current generation begins
    stop  INTEGER NOT NULL,                           -- where the next value goes
    PRIMARY KEY (run, name),
    CHECK (start >= 0 AND stop >= start)
) STRICT, WITHOUT ROWID;

CREATE TABLE stream_parts (
    run     INTEGER NOT NULL,
    stream  TEXT    NOT NULL,
    writer  TEXT    NOT NULL,
    fence   INTEGER NOT NULL,                         -- of its last change, like the attempt
    attempt INTEGER NOT NULL,
    length  INTEGER NOT NULL CHECK (length >= 0),
    first   INTEGER NOT NULL,                         -- the position of its first value, if any
    PRIMARY KEY (run, stream, writer)
) STRICT, WITHOUT ROWID;

CREATE TABLE stream_chunks (
    run    INTEGER NOT NULL,
    stream TEXT    NOT NULL,
    first  INTEGER NOT NULL,                          -- the position of its first value
    writer TEXT    NOT NULL,
    count  INTEGER NOT NULL CHECK (count > 0),
    value  TEXT    NOT NULL,                          -- a JSON array of so many values
    PRIMARY KEY (run, stream, first)
) STRICT, WITHOUT ROWID;

-- The executions of a run before its last one, which is in the run's row.
CREATE TABLE executions (
    run    INTEGER NOT NULL,
    fence  INTEGER NOT NULL,
    worker TEXT    NOT NULL,
    host   TEXT    NOT NULL,
    pid    INTEGER NOT NULL,
    began  REAL    NOT NULL,
    ended  REAL    NOT NULL,
    status TEXT    NOT NULL,                          -- see ExecutionRow.status
    reason TEXT,
    PRIMARY KEY (run, fence)
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    run    INTEGER NOT NULL,
    number INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    id     TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    at     REAL    NOT NULL,
    by     TEXT,                                      -- who sent it
    PRIMARY KEY (run, number),
    UNIQUE (run, name, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    name            TEXT    PRIMARY KEY,
    queued          INTEGER NOT NULL DEFAULT 0,
    running         INTEGER NOT NULL DEFAULT 0,       -- those without a parent
    depth_max       INTEGER,
    concurrency_max INTEGER,
    key_concurrency_max INTEGER CHECK (key_concurrency_max > 0),
    key_starts_max  INTEGER CHECK (key_starts_max > 0),
    key_period      REAL    CHECK (key_period > 0),
    paused          INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    CHECK ((key_starts_max IS NULL) = (key_period IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id          TEXT    PRIMARY KEY,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    started     REAL    NOT NULL,
    lease       REAL    NOT NULL CHECK (lease >= 0 AND lease <= 1e12),
    renewed     REAL    NOT NULL CHECK (abs(renewed) <= 1e12),
    lease_until REAL    NOT NULL,
    draining    INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    asked       TEXT,                                 -- the reason of a request that it drain
    queues      TEXT    NOT NULL CHECK (queues GLOB '[[]*]'),
    workflows   TEXT    NOT NULL CHECK (workflows GLOB '[[]*]'),
    concurrency INTEGER NOT NULL,
    -- No lease outlives its length. The second is for rounding.
    CHECK (lease_until <= renewed + lease + 1)
) STRICT, WITHOUT ROWID;

CREATE TABLE worker_deaths (                          -- the newest ones, one row per charged run
    at     REAL    NOT NULL,
    worker TEXT    NOT NULL,
    run    INTEGER NOT NULL,                          -- died without progress; 0: no run did
    PRIMARY KEY (at, worker, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE pulse (
    beat  REAL NOT NULL,                              -- the last sign of life of any worker
    awake REAL NOT NULL                               -- since when they came without a gap
) STRICT;
INSERT INTO pulse (beat, awake) VALUES (0, 0);

CREATE TABLE drains (
    number INTEGER PRIMARY KEY AUTOINCREMENT,         -- grows with time, whatever the clock does
    worker TEXT    NOT NULL UNIQUE,
    host   TEXT    NOT NULL,
    pid    INTEGER NOT NULL,
    reason TEXT    NOT NULL,
    began  REAL    NOT NULL,
    ended  REAL,
    held   INTEGER NOT NULL,                          -- at the start; see DrainRow.held
    report TEXT,
    swept  INTEGER NOT NULL DEFAULT 0 CHECK (swept IN (0, 1))  -- closed by a sweep
) STRICT;

CREATE TABLE recoveries (
    drain   TEXT    NOT NULL,
    run     INTEGER NOT NULL,
    seconds REAL    NOT NULL,                         -- from its release to its next claim
    by      TEXT    NOT NULL,
    PRIMARY KEY (drain, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE durations (
    workflow TEXT    NOT NULL,
    step     TEXT    NOT NULL,
    number   INTEGER NOT NULL,                        -- keeps counting; the newest ones are kept
    seconds  REAL    NOT NULL,
    PRIMARY KEY (workflow, step, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    pk      INTEGER PRIMARY KEY AUTOINCREMENT,        -- a session that exists again has another
    space   TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    version INTEGER NOT NULL,
    updated REAL    NOT NULL,
    expires REAL,
    owner   INTEGER,                                  -- NULL: nobody has taken it
    size    INTEGER NOT NULL,                         -- how many fields and lists it has
    tokens  TEXT    NOT NULL CHECK (tokens GLOB '{*}'),  -- what each change returned
    UNIQUE (space, id)
) STRICT;
CREATE INDEX sessions_updated ON sessions (space, updated, id);
CREATE INDEX sessions_expires ON sessions (expires) WHERE expires IS NOT NULL;

CREATE TABLE session_fields (
    session INTEGER NOT NULL,
    field   TEXT    NOT NULL,
    first   INTEGER,                                  -- the numbers of a list's first and last item
    last    INTEGER,
    value   TEXT,                                     -- NULL: it is a list. Last: it may be long
    PRIMARY KEY (session, field),
    CHECK ((value IS NULL) = (first IS NOT NULL) AND (first IS NULL) = (last IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE session_items (
    session INTEGER NOT NULL,
    field   TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    value   TEXT    NOT NULL,
    PRIMARY KEY (session, field, number)
) STRICT, WITHOUT ROWID;
