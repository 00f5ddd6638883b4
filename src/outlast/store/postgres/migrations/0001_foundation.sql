-- Names are compared byte by byte (COLLATE "C"): the same order everywhere, whatever the database's language.
CREATE SEQUENCE fences AS bigint CACHE 1;
CREATE SEQUENCE numbers AS bigint CACHE 1;                     -- of runs: never used again, even after pruning
CREATE SEQUENCE epochs AS bigint CACHE 1;                      -- of writers: a call of one that is over never counts again

CREATE TABLE writers (                                         -- who may commit: see `commit`
    id    text        COLLATE "C" PRIMARY KEY,
    epoch bigint      NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A run is written three times, when it comes, is claimed and ends, and each time it is a new version of its row. In a page that has room for as many
-- versions as rows they stay in it: less is logged, and the next one takes the room of the last but one.
CREATE TABLE runs (
    pk                     bigint           PRIMARY KEY,
    id                     text             COLLATE "C" NOT NULL UNIQUE,
    workflow               text             COLLATE "C" NOT NULL,
    args                   text             NOT NULL,
    queue                  text             COLLATE "C" NOT NULL,
    priority               bigint           NOT NULL,
    status                 text             COLLATE "C" NOT NULL,
    fence                  bigint           NOT NULL,          -- negative: void, nobody holds it
    worker                 text             COLLATE "C",
    token                  text             COLLATE "C",       -- of the submission or claim that made this fence
    seed                   text             NOT NULL,          -- where the run's uuid() and random() come from
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
    failed_at              bigint,                             -- the entry that ended it, from which a retry starts
    value                  text,
    error                  text,
    lives                  bigint           NOT NULL DEFAULT 0,
    ready                  smallint         NOT NULL DEFAULT 0, -- 1: claimable; 2: claimable, and a suspect
    mark                   bigint           NOT NULL DEFAULT 0, -- seq of the last death or interruption
    deaths_in_a_row        bigint           NOT NULL DEFAULT 0,
    interruptions_in_a_row bigint           NOT NULL DEFAULT 0,
    failures               bigint           NOT NULL DEFAULT 0,
    attempts_max           bigint           NOT NULL,
    interruptions_max      bigint           NOT NULL,
    undoing                text,                               -- how it ends once it is undone, as JSON; NULL: it is not being undone
    abandon_after          double precision,                   -- seconds for which it may be claimable and not taken
    left_by                text             COLLATE "C",       -- the draining worker that was interrupted at it
    left_at                double precision                    -- both until it is claimed again
) WITH (fillfactor = 50);

-- The order of claims, in one direction and without NULL, so that a scan can begin at a remembered place: see `ready`.
CREATE INDEX runs_ready ON runs
    (queue, workflow, ready, (CASE WHEN interrupted IS NULL THEN 1 ELSE 0 END), (-priority), coalesce(interrupted, 1e12), due, pk)
    WHERE ready > 0;
CREATE INDEX runs_ready_children ON runs
    (queue, workflow, ready, (CASE WHEN interrupted IS NULL THEN 1 ELSE 0 END), (-priority), coalesce(interrupted, 1e12), due, pk)
    WHERE ready + 0 > 0 AND coalesce(parent, '') <> '';        -- so written, no plan for it can be by runs_ready, nor by runs_parent
CREATE INDEX runs_later ON runs (due, pk) WHERE ready = 0 AND status IN ('queued', 'waiting');
CREATE INDEX runs_queued ON runs (queue) WHERE status = 'queued';
CREATE INDEX runs_running ON runs (queue) WHERE status = 'running' AND parent IS NULL;
CREATE INDEX runs_held ON runs (worker, token) WHERE worker IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended, pk) WHERE ended IS NOT NULL AND NOT (workflow = '' AND status = 'done');
CREATE INDEX runs_acked ON runs (ended, pk) WHERE workflow = '' AND status = 'done';
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

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
    cost    text,                                              -- what it has cost: a JSON object of numbers
    token   text             COLLATE "C",                      -- of the request that made it
    PRIMARY KEY (run, seq)
);
CREATE INDEX entries_done ON entries (run, key) WHERE kind = 'done';
CREATE INDEX entries_asked ON entries (run, token) WHERE token IS NOT NULL;

CREATE TABLE messages (
    run    bigint           NOT NULL,
    number bigint           NOT NULL,
    name   text             COLLATE "C" NOT NULL,
    id     text             COLLATE "C" NOT NULL,
    value  text             NOT NULL,
    at     double precision NOT NULL,
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

CREATE TABLE workers (
    id          text             COLLATE "C" PRIMARY KEY,
    host        text             NOT NULL,
    pid         bigint           NOT NULL,
    started     double precision NOT NULL,
    lease_until double precision NOT NULL,
    draining    smallint         NOT NULL DEFAULT 0,
    lease       double precision NOT NULL,
    renewed     double precision NOT NULL,
    queues      text             NOT NULL DEFAULT '[]',
    workflows   text             NOT NULL DEFAULT '[]',
    concurrency bigint           NOT NULL DEFAULT 0,
    asked       text                                           -- why somebody wants it to drain
);

CREATE UNLOGGED TABLE presence (                               -- empty after a crash of the server: then it says nothing of anybody
    worker text             COLLATE "C" PRIMARY KEY,
    beat   double precision NOT NULL,                          -- by the server's clock
    every  double precision NOT NULL,                          -- seconds between beats
    server timestamptz      NOT NULL                           -- since when the server runs that the worker's lock is in
);

CREATE TABLE pulse (
    beat  double precision NOT NULL,                           -- the last sign of life of any worker
    awake double precision NOT NULL                            -- since when they came without a gap
);
INSERT INTO pulse (beat, awake) VALUES (0, 0);

CREATE TABLE queues (
    name            text             COLLATE "C" PRIMARY KEY,
    listed          boolean          NOT NULL DEFAULT false,   -- it has had something in it, or limits
    depth_max       bigint,
    concurrency_max bigint,
    depth           bigint           NOT NULL DEFAULT 0,       -- when it was last counted, for a limit too great to count each time
    counted         double precision NOT NULL DEFAULT -1e12,
    count_seconds   double precision NOT NULL DEFAULT 0
);

CREATE TABLE lines (                                           -- which workflows a queue has ever had
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
    held   bigint           NOT NULL,                          -- when it began, after what had not begun was given back
    report text,
    swept  boolean          NOT NULL DEFAULT false             -- closed by a sweep: the worker's own report came too late
);

CREATE TABLE recoveries (
    drain   text             COLLATE "C" NOT NULL,
    run     bigint           NOT NULL,
    seconds double precision NOT NULL,                         -- from being left to being claimed
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
    version bigint           NOT NULL,                         -- 0: one that was forgotten, or is being made
    updated double precision NOT NULL,
    expires double precision,
    tokens  jsonb            NOT NULL,                         -- of the last changes, newest last: [token, the version it made]
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
