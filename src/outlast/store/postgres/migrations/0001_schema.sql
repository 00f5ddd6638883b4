-- Names are compared byte by byte (COLLATE "C"), so their order does not depend on the database.
CREATE SEQUENCE fences AS bigint CACHE 1;
-- Numbers of runs, never reused, even after pruning.
CREATE SEQUENCE numbers AS bigint CACHE 1;
-- Epochs of writers. A call with an old epoch is rejected.
CREATE SEQUENCE epochs AS bigint CACHE 1;

-- The writers that may commit: see `commit`.
CREATE TABLE writers (
    id    text        COLLATE "C" PRIMARY KEY,
    epoch bigint      NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A run is written three times: when it is submitted, claimed and ended. Each time PostgreSQL
-- writes a new version of the row. A half-empty page has room for it, so less is logged and space
-- is reused.
CREATE TABLE runs (
    pk                     bigint           PRIMARY KEY,
    id                     text             COLLATE "C" NOT NULL UNIQUE,
    workflow               text             COLLATE "C" NOT NULL,
    args                   text             NOT NULL,
    queue                  text             COLLATE "C" NOT NULL,
    priority               bigint           NOT NULL,
    status                 text             COLLATE "C" NOT NULL CHECK (status IN (
        'queued', 'running', 'waiting', 'parked', 'done', 'failed', 'cancelled', 'dead')),
    -- Negative if void: no execution holds the run.
    fence                  bigint           NOT NULL,
    worker                 text             COLLATE "C",
    -- The token of the submission or claim that created the fence.
    token                  text             COLLATE "C",
    seed                   text             NOT NULL,          -- the source of the run's uuid() and random()
    parent                 text             COLLATE "C",
    created                double precision NOT NULL,
    started                double precision,                   -- the first claim
    due                    double precision NOT NULL,
    timeout                double precision,
    deadline               double precision,
    ended                  double precision,
    interrupted            double precision,                   -- set while it goes before new work
    deaths                 bigint           NOT NULL DEFAULT 0,
    interruptions          bigint           NOT NULL DEFAULT 0,
    waits                  text             NOT NULL DEFAULT '',
    cancel                 text,
    reason                 text,
    -- The entry from which a retry starts.
    failed_at              bigint,
    value                  text,
    error                  text,
    lives                  bigint           NOT NULL DEFAULT 0,
    -- See RunRow.ready.
    ready                  smallint         NOT NULL DEFAULT 0 CHECK (ready BETWEEN -3 AND 2),
    -- The seq of the last death or interruption.
    mark                   bigint           NOT NULL DEFAULT 0,
    deaths_in_a_row        bigint           NOT NULL DEFAULT 0,
    interruptions_in_a_row bigint           NOT NULL DEFAULT 0,
    failures               bigint           NOT NULL DEFAULT 0,
    attempts_max           bigint           NOT NULL,
    interruptions_max      bigint           NOT NULL,
    -- How the run ends after its compensation, as JSON.
    undoing                text,
    abandon_after          double precision,                   -- seconds; see RunRow.abandon_after
    by                     text,                               -- who submitted it
    -- The draining worker that released the run.
    left_by                text             COLLATE "C",
    left_at                double precision,                   -- both until it is claimed again
    claimed                double precision,                   -- the last claim
    -- The worker of the last claim. `worker` is cleared at the end of an execution.
    claimed_by             text             COLLATE "C",
    claimed_host           text,
    claimed_pid            bigint,
    -- When an execution ended that did not end the run.
    released               double precision,
    -- The status in which it left the run.
    released_as            text             COLLATE "C",
    -- Whose limits the run counts against.
    key                    text             COLLATE "C",
    turn                   double precision                    -- see RunRow.turn
) WITH (fillfactor = 50);

-- The order of claims, in one direction and without NULL, so that a scan can begin at a remembered
-- position: see `ready`.
CREATE INDEX runs_ready ON runs
    (queue, workflow, ready, (CASE WHEN interrupted IS NULL THEN 1 ELSE 0 END), (-priority),
        coalesce(interrupted, 1e12), coalesce(turn, due), pk)
    WHERE ready > 0;
CREATE INDEX runs_ready_children ON runs
    (queue, workflow, ready, (CASE WHEN interrupted IS NULL THEN 1 ELSE 0 END), (-priority),
        coalesce(interrupted, 1e12), due, pk)
    -- Written so that no plan uses it in place of runs_ready or runs_parent.
    WHERE ready + 0 > 0 AND coalesce(parent, '') <> '';
CREATE INDEX runs_later ON runs (due, pk) WHERE ready = 0 AND status IN ('queued', 'waiting');
-- Delayed runs are counted often. Ready and waiting runs must not make that slower.
CREATE INDEX runs_delayed ON runs (queue, due) WHERE ready = 0 AND status = 'queued';
CREATE INDEX runs_queued ON runs (queue) WHERE status = 'queued';
CREATE INDEX runs_running ON runs (queue) WHERE status = 'running' AND parent IS NULL;
CREATE INDEX runs_held ON runs (worker, token) WHERE worker IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended, pk) WHERE ended IS NOT NULL
    AND NOT (workflow = '' AND status = 'done');
CREATE INDEX runs_acked ON runs (ended, pk) WHERE workflow = '' AND status = 'done';
-- What a person looks for among many runs. Runs that need nobody cost nothing here.
CREATE INDEX runs_stopped ON runs (status, pk)
    WHERE status IN ('parked', 'dead', 'failed', 'cancelled');
CREATE INDEX runs_asking ON runs (pk) WHERE ended IS NULL AND waits <> '';
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

-- Runs with a key: those waiting for a turn, those that have one, those that execute, and their
-- first starts. See 71_keys.sql.
CREATE INDEX runs_gated ON runs
    (queue, key, workflow, ready, (-priority), coalesce(interrupted, 1e12), due, pk)
    WHERE key IS NOT NULL AND ready < 0;
-- Written so that no plan uses it in place of runs_ready.
CREATE INDEX runs_heads ON runs (queue, key) WHERE key IS NOT NULL AND ready + 0 > 0;
CREATE INDEX runs_key_running ON runs (queue, key) WHERE key IS NOT NULL AND status = 'running';
CREATE INDEX runs_key ON runs (key, pk) WHERE key IS NOT NULL;
CREATE INDEX runs_key_started ON runs (queue, key, started)
    WHERE key IS NOT NULL AND started IS NOT NULL;

-- Keys that a claim reviews from the given time on. A change adds a row and reads no other, so
-- changes do not wait for each other.
CREATE TABLE key_changes (
    queue text             COLLATE "C" NOT NULL,
    key   text             COLLATE "C" NOT NULL,
    at    double precision NOT NULL
);
CREATE INDEX key_changes_at ON key_changes (queue, at, key);
CREATE INDEX key_changes_of ON key_changes (queue, key);

-- A statement that makes a run with a key ready only lets it wait for its turn. Its key is then
-- reviewed, and also when one of its runs stops executing or gives up its turn.
CREATE FUNCTION run_key_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    changed boolean;
BEGIN
    IF NEW.ready > 0 AND NEW.turn IS NULL AND NEW.undoing IS NULL THEN
        NEW.ready := CASE WHEN NEW.ready = 2 THEN -2 WHEN NEW.started IS NULL THEN -3 ELSE -1 END;
    ELSIF NEW.ready = 0 THEN
        NEW.turn := NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        changed := NEW.ready < 0;
        INSERT INTO queues AS q (name, keyed)
            SELECT NEW.queue, true WHERE NOT EXISTS (SELECT 1 FROM queues o
                WHERE o.name = NEW.queue AND o.keyed)
        ON CONFLICT (name) DO UPDATE SET keyed = true;
    ELSE
        changed := (NEW.ready < 0 AND OLD.ready >= 0 AND OLD.turn IS NULL)
            OR (OLD.status = 'running' AND NEW.status <> 'running')
            OR (OLD.ready <> 0 AND NEW.ready = 0 AND NEW.status <> 'running')
            OR (OLD.undoing IS NULL AND NEW.undoing IS NOT NULL);
    END IF;
    IF changed THEN
        INSERT INTO key_changes (queue, key, at) VALUES (NEW.queue, NEW.key, 0);
    END IF;
    RETURN NEW;
END $$;

CREATE TABLE entries (
    run     bigint           NOT NULL,
    seq     bigint           NOT NULL,
    fence   bigint           NOT NULL,
    kind    text             COLLATE "C" NOT NULL,
    key     text             COLLATE "C" NOT NULL,
    at      double precision NOT NULL,
    args    text,
    value   text,
    error   text,
    seconds double precision,
    attempt bigint,
    asked   boolean,
    cost    text,                                              -- a JSON object of numbers
    token   text             COLLATE "C",                      -- of the request that wrote it
    PRIMARY KEY (run, seq)
);
CREATE INDEX entries_done ON entries (run, key) WHERE kind = 'done';
CREATE INDEX entries_asked ON entries (run, token) WHERE token IS NOT NULL;

-- The executions of a run before its last one, which is in the run's row.
CREATE TABLE executions (
    run    bigint           NOT NULL,
    fence  bigint           NOT NULL,
    worker text             COLLATE "C" NOT NULL,
    host   text             NOT NULL,
    pid    bigint           NOT NULL,
    began  double precision NOT NULL,
    ended  double precision NOT NULL,
    status text             COLLATE "C" NOT NULL,              -- see ExecutionRow.status
    reason text,
    PRIMARY KEY (run, fence)
);

CREATE TABLE messages (
    run    bigint           NOT NULL,
    number bigint           NOT NULL,
    name   text             COLLATE "C" NOT NULL,
    id     text             COLLATE "C" NOT NULL,
    value  text             NOT NULL,
    at     double precision NOT NULL,
    by     text,                                               -- who sent it
    PRIMARY KEY (run, number)
);
CREATE UNIQUE INDEX messages_once ON messages (run, md5(name), md5(id));

CREATE TABLE progress (
    run     bigint           NOT NULL,
    key     text             COLLATE "C" NOT NULL,             -- of a step that has not ended
    fence   bigint           NOT NULL,
    attempt bigint           NOT NULL,
    value   text             NOT NULL,
    at      double precision NOT NULL,
    PRIMARY KEY (run, key)
);

-- What a run has published: see the command Publish.
CREATE TABLE streams (
    run   bigint NOT NULL,
    name  text   COLLATE "C" NOT NULL,
    start bigint NOT NULL,                                     -- where its generation begins
    stop  bigint NOT NULL,                                     -- where the next value goes
    PRIMARY KEY (run, name),
    CHECK (start >= 0 AND stop >= start)
);

CREATE TABLE stream_parts (
    run     bigint NOT NULL,
    stream  text   COLLATE "C" NOT NULL,
    writer  text   COLLATE "C" NOT NULL,
    fence   bigint NOT NULL,                                   -- of its last change
    attempt bigint NOT NULL,
    length  bigint NOT NULL CHECK (length >= 0),
    first   bigint NOT NULL,                                   -- where its first value is, if any
    PRIMARY KEY (run, stream, writer)
);

CREATE TABLE stream_chunks (
    run    bigint NOT NULL,
    stream text   COLLATE "C" NOT NULL,
    first  bigint NOT NULL,                                    -- where its first value is
    writer text   COLLATE "C" NOT NULL,
    count  bigint NOT NULL CHECK (count > 0),
    value  text   NOT NULL,                                    -- a JSON array of `count` values
    PRIMARY KEY (run, stream, first)
);

CREATE TABLE workers (
    id           text             COLLATE "C" PRIMARY KEY,
    host         text             NOT NULL,
    pid          bigint           NOT NULL,
    started      double precision NOT NULL,
    lease        double precision NOT NULL CHECK (lease >= 0 AND lease <= 1e12),
    renewed      double precision NOT NULL CHECK (abs(renewed) <= 1e12),
    lease_until  double precision NOT NULL,
    draining     smallint         NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    asked        text,                                -- the reason of a request that it drain
    queues       text             NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(queues::jsonb) = 'array'),
    workflows    text             NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(workflows::jsonb) = 'array'),
    concurrency  bigint           NOT NULL DEFAULT 0,
    -- Some of its runs were locked when it was swept.
    partly_swept boolean          NOT NULL DEFAULT false,
    -- No lease ends later than its length allows. 1 is for rounding.
    CHECK (lease_until <= renewed + lease + 1)
);

CREATE TABLE worker_deaths (                          -- the newest ones, one row per charged run
    at     double precision NOT NULL,
    worker text             COLLATE "C" NOT NULL,
    run    bigint           NOT NULL,                 -- died without progress; 0: no run did
    PRIMARY KEY (at, worker, run)
);

CREATE UNLOGGED TABLE presence (                               -- empty after a crash of the server
    worker text             COLLATE "C" PRIMARY KEY,
    beat   double precision NOT NULL,                          -- by the server's clock
    every  double precision NOT NULL,                          -- seconds between beats
    server timestamptz      NOT NULL                           -- when the server with the worker's lock started
);

CREATE TABLE pulse (
    -- The last sign of life of any worker.
    beat  double precision NOT NULL,
    awake double precision NOT NULL                            -- since when they came without a gap
);
INSERT INTO pulse (beat, awake) VALUES (0, 0);

CREATE TABLE queues (
    name            text             COLLATE "C" PRIMARY KEY,
    listed          boolean          NOT NULL DEFAULT false,   -- it had a run, or it has limits
    depth_max       bigint,
    concurrency_max bigint,
    key_concurrency_max bigint        CHECK (key_concurrency_max > 0),
    key_starts_max  bigint           CHECK (key_starts_max > 0),
    key_period      double precision CHECK (key_period > 0),
    paused          boolean          NOT NULL DEFAULT false,
    keyed           boolean          NOT NULL DEFAULT false,   -- it had a run with a key
    -- The last count. Large queues are not counted each time.
    depth           bigint           NOT NULL DEFAULT 0,
    counted         double precision NOT NULL DEFAULT -1e12,
    count_seconds   double precision NOT NULL DEFAULT 0,
    CHECK ((key_starts_max IS NULL) = (key_period IS NULL))
);
CREATE TRIGGER run_key_changed BEFORE INSERT OR UPDATE OF status, ready ON runs
    FOR EACH ROW WHEN (NEW.key IS NOT NULL) EXECUTE FUNCTION run_key_changed();

-- The workflows that each queue has ever had.
CREATE TABLE lines (
    queue    text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    PRIMARY KEY (queue, workflow)
);

CREATE TABLE drains (
    number bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker text             COLLATE "C" NOT NULL UNIQUE,
    host   text             NOT NULL,
    pid    bigint           NOT NULL,
    reason text             NOT NULL,
    began  double precision NOT NULL,
    ended  double precision,
    held   bigint           NOT NULL,                          -- at the start; see DrainRow.held
    report text,
    swept  boolean          NOT NULL DEFAULT false             -- closed by a sweep
);

CREATE TABLE recoveries (
    drain   text             COLLATE "C" NOT NULL,
    run     bigint           NOT NULL,
    seconds double precision NOT NULL,                         -- from its release to its next claim
    by      text             NOT NULL,
    PRIMARY KEY (drain, run)
);

CREATE TABLE durations (
    workflow text             COLLATE "C" NOT NULL,
    step     text             COLLATE "C" NOT NULL,
    number   bigint           GENERATED ALWAYS AS IDENTITY,
    seconds  double precision NOT NULL,
    PRIMARY KEY (workflow, step, number)
);

CREATE TABLE sessions (
    pk      bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    space   text             COLLATE "C" NOT NULL,
    id      text             COLLATE "C" NOT NULL,
    -- 0 if it was deleted or is being created.
    version bigint           NOT NULL,
    updated double precision NOT NULL,
    expires double precision,
    -- NULL if it has no owner.
    owner   bigint,
    -- The number of fields and lists.
    size    bigint           NOT NULL DEFAULT 0,
    -- The last changes, newest last: [token, answer].
    tokens  jsonb            NOT NULL,
    UNIQUE (space, id)
);
CREATE INDEX sessions_updated ON sessions (space, updated, id);
CREATE INDEX sessions_expires ON sessions (expires) WHERE expires IS NOT NULL;

CREATE TABLE session_fields (
    session bigint NOT NULL,
    field   text   COLLATE "C" NOT NULL,
    value   text,                                              -- NULL: it is a list
    first   bigint,                                            -- the numbers of a list's first and last item
    last    bigint,
    PRIMARY KEY (session, field),
    CHECK ((value IS NULL) = (first IS NOT NULL) AND (first IS NULL) = (last IS NULL))
);

CREATE TABLE session_items (
    session bigint NOT NULL,
    field   text   COLLATE "C" NOT NULL,
    number  bigint NOT NULL,
    value   text   NOT NULL,
    PRIMARY KEY (session, field, number)
);
