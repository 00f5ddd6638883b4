-- Submitting runs. The fields of Submit are: id, workflow, args, token, seed, queue, priority,
-- delay, timeout, parent, worker, attempts_max, interruptions_max, depth_max, abandon_after, by,
-- key, replace.

-- Submit a run that its worker starts immediately.
CREATE FUNCTION submit__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    base bigint := fences_from__v();
    w workers;
    r runs;
BEGIN
    SELECT * INTO w FROM workers WHERE id = v->>10 FOR SHARE;
    IF NOT FOUND THEN
        RETURN refused__v('worker', 'not registered, or swept');
    END IF;
    IF w.draining = 1 THEN
        SELECT * INTO r FROM runs WHERE id = v->>0;
        IF r.token = v->>3 AND r.worker = v->>10 THEN
            RETURN '[' || row__v(r) || ',true]';
        END IF;
        RETURN refused__v('draining', '');
    END IF;
    LOOP  -- An existing run may be pruned before it is read.
        INSERT INTO runs (pk, id, workflow, args, queue, priority, status, fence, worker, token,
            seed, parent, attempts_max,
                          interruptions_max, created, started, due, timeout, deadline,
                              abandon_after, by, lives, claimed, claimed_by, claimed_host,
                              claimed_pid)
        VALUES (nextval('numbers'), v->>0, v->>1, v->>2, v->>5, (v->>6)::bigint, 'running',
            base + nextval('fences'), v->>10, v->>3, v->>4,
                v->>9, (v->>11)::bigint, (v->>12)::bigint, now, now, now, (v->>8)::double precision,
                    now + (v->>8)::double precision,
                (v->>14)::double precision, v->>15, 1, now, w.id, w.host, w.pid)
        ON CONFLICT (id) DO NOTHING RETURNING * INTO r;
        IF FOUND THEN
            PERFORM list_lines__v(ARRAY[v->>5], ARRAY[v->>1], NULL);
            RETURN '[' || row__v(r) || ',true]';
        END IF;
        SELECT * INTO r FROM runs WHERE id = v->>0;
        IF FOUND THEN
            RETURN '[' || row__v(r) || ',' || (r.token IS NOT DISTINCT
                FROM v->>3 AND r.worker IS NOT DISTINCT FROM v->>10)::text || ']';
        END IF;
    END LOOP;
END $$;

-- List queues and their workflows. `more` is how many runs were added. It is added to a recent
-- count (see `depth`), unless another call has locked the queue.
CREATE FUNCTION list_lines__v(names text[], workflows text[], more bigint[]) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    put record;
BEGIN
    INSERT INTO lines (queue, workflow)
    SELECT n, w FROM unnest(names, workflows) t(n, w)
    WHERE NOT EXISTS (SELECT 1 FROM lines l WHERE l.queue = n AND l.workflow = w) ORDER BY 1, 2
    ON CONFLICT DO NOTHING;
    INSERT INTO queues AS q (name, listed)
    SELECT DISTINCT n, true FROM unnest(names) n
    WHERE NOT EXISTS (SELECT 1 FROM queues o WHERE o.name = n AND o.listed) ORDER BY 1
    ON CONFLICT (name) DO UPDATE SET listed = true WHERE NOT q.listed;
    IF more IS NOT NULL AND EXISTS (SELECT 1 FROM queues
        WHERE name = ANY(names) AND counted > seconds__v() - 11) THEN
        FOR put IN SELECT n, m FROM unnest(names, more) t(n, m) ORDER BY n LOOP
            UPDATE queues SET depth = depth + put.m
                WHERE name = (SELECT name FROM queues
                    WHERE name = put.n FOR NO KEY UPDATE SKIP LOCKED);
        END LOOP;
    END IF;
END $$;

-- Submit runs one by one: join a run that exists, refuse where `refusals` says so, and insert the
-- others. Their numbers follow the order of the commands, but they are inserted in the order of
-- their ids, so that two batches cannot deadlock. A joined run is not locked. A run that may be
-- replaced was locked before.
CREATE FUNCTION enqueue__v(commands jsonb, refusals text[], now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    fresh bigint[] := ARRAY(SELECT nextval('numbers')
        FROM generate_series(1, jsonb_array_length(commands)));
    wrote bigint;
    inserted bigint[];
    names text[];
    workflows text[];
    more bigint[];
    place int := 1;
    long bigint := 0;
    outcomes text[] := '{}';
    outcome text;
    t record;
    r runs;
BEGIN
    INSERT INTO runs (pk, id, workflow, args, queue, priority, status, fence, token, seed, parent,
        attempts_max,
                      interruptions_max, created, due, timeout, abandon_after, by, key,
                          ready)
    SELECT fresh[n], v->>0, v->>1, v->>2, v->>5, (v->>6)::bigint, 'queued', 0, v->>3, v->>4, v->>9,
        (v->>11)::bigint, (v->>12)::bigint,
           now, now + (v->>7)::double precision, (v->>8)::double precision,
               (v->>14)::double precision, v->>15, v->>16,
           CASE WHEN (v->>7)::double precision <= 0 THEN 1 ELSE 0 END
    FROM jsonb_array_elements(commands) WITH ORDINALITY e(v, n) WHERE refusals[n] IS NULL
        ORDER BY (v->>0) COLLATE "C", n
    ON CONFLICT (id) DO NOTHING;
    GET DIAGNOSTICS wrote = ROW_COUNT;
    IF wrote = cardinality(fresh) THEN
        SELECT array_agg(g.queue), array_agg(g.workflow), array_agg(g.more) INTO names, workflows,
            more FROM (
            SELECT v->>5 AS queue, v->>1 AS workflow, count(*) AS more
                FROM jsonb_array_elements(commands) v GROUP BY 1, 2) g;
        PERFORM list_lines__v(names, workflows, more);
        RETURN 'true';
    END IF;
    IF wrote > 0 THEN
        -- No other call has these numbers.
        inserted := ARRAY(SELECT pk FROM runs WHERE pk = ANY(fresh) ORDER BY pk);
        SELECT array_agg(g.queue), array_agg(g.workflow), array_agg(g.more) INTO names, workflows,
            more FROM (
            SELECT o.queue, o.workflow, count(*) AS more FROM runs o WHERE o.pk = ANY(inserted)
                GROUP BY 1, 2) g;
        PERFORM list_lines__v(names, workflows, more);
    END IF;
    FOR t IN SELECT v->>0 AS id, v->>3 AS token, (v->>17)::boolean AS replaces, v, n
        FROM jsonb_array_elements(commands) WITH ORDINALITY e(v, n) ORDER BY n LOOP
        IF refusals[t.n] IS NOT NULL THEN
            outcome := refused__v('depth', refusals[t.n]);
        ELSIF inserted[place] = fresh[t.n] THEN
            outcome := '[null,true]';
            place := place + 1;
        ELSE
            SELECT * INTO r FROM runs WHERE id = t.id;
            IF NOT FOUND THEN  -- It was pruned in between. The whole batch is tried again.
                RAISE EXCEPTION 'a run was pruned while it was joined'
                    USING ERRCODE = 'serialization_failure';
            END IF;
            IF t.replaces AND r.token IS DISTINCT FROM t.token AND replace__v(r, t.v, now) THEN
                outcomes[t.n] := '[null,true]';
                CONTINUE;
            END IF;
            outcome := '[' || CASE WHEN long > ANSWER_MAX__v
                THEN json_build_array(r.pk, r.fence)::text ELSE row__v(r) END || ','
                || (r.token IS NOT DISTINCT FROM t.token AND r.status = 'queued'
                    AND r.lives = 0)::text || ']';
            long := long + octet_length(outcome);
        END IF;
        outcomes[t.n] := outcome;
    END LOOP;
    RETURN '[' || array_to_string(outcomes, ',') || ']';
END $$;

-- Replace a run that waits for its first claim by another submission. Return false if it no longer
-- waits, or is different work.
CREATE FUNCTION replace__v(run runs, v jsonb, now double precision) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- The trigger puts a run with a key into its lane.
    UPDATE runs r SET args = v->>2, token = v->>3, seed = v->>4, priority = (v->>6)::bigint,
        due = now + (v->>7)::double precision, timeout = (v->>8)::double precision,
        abandon_after = (v->>14)::double precision, by = v->>15, turn = NULL,
        ready = CASE WHEN (v->>7)::double precision <= 0 THEN 1 ELSE 0 END
    WHERE r.pk = run.pk AND r.status = 'queued' AND r.lives = 0 AND r.parent IS NULL
        AND r.workflow = v->>1 AND r.queue = v->>5 AND r.key IS NOT DISTINCT FROM v->>16;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF run.key IS NOT NULL THEN
        -- The run may have given up its turn.
        INSERT INTO key_changes (queue, key, at) VALUES (run.queue, run.key, 0);
    END IF;
    RETURN true;
END $$;

-- Return "depth/limit/needed" at the position of each command whose queue is full, or NULL if none
-- is.
CREATE FUNCTION full__v(commands jsonb) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t record;
    bound bigint;
    depths jsonb := counted__v(commands);
    free jsonb := '{}';
    depth bigint;
    refusals text[];
BEGIN
    IF depths IS NULL THEN
        RETURN NULL;
    END IF;
    refusals := array_fill(NULL::text, ARRAY[jsonb_array_length(commands)]);
    FOR t IN
        SELECT c.* FROM (
            SELECT v->>0 AS id, v->>5 AS queue, (v->>13)::bigint AS asked, n,
                lag(n) OVER (PARTITION BY v->>0 ORDER BY n) AS same
            FROM jsonb_array_elements(commands) WITH ORDINALITY e(v, n)
        ) c WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = c.id) ORDER BY c.n
    LOOP
        -- It joins an earlier command of this batch.
        CONTINUE WHEN t.same IS NOT NULL AND refusals[t.same] IS NULL;
        bound := coalesce((SELECT depth_max FROM queues WHERE name = t.queue), t.asked);
        IF bound IS NULL THEN  -- It still counts for later commands that have a limit.
            free := free || jsonb_build_object(t.queue, coalesce((free->>t.queue)::bigint, 0) + 1);
            CONTINUE;
        END IF;
        depth := coalesce((depths->>t.queue)::bigint,
            depth__v(t.queue, bound, 1)) + coalesce((free->>t.queue)::bigint, 0);
        free := free - t.queue;
        IF depth + 1 > bound THEN
            refusals[t.n] := format('%s/%s/1', depth, bound);
        ELSE
            depth := depth + 1;
        END IF;
        depths := depths || jsonb_build_object(t.queue, depth);
    END LOOP;
    RETURN refusals;
END $$;

CREATE FUNCTION exact__v(own bigint, asked bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(own, asked) <= 1000
$$;

-- Return how many runs are queued, to decide whether `more` fit. With a limit of up to 1,000 they
-- are counted each time, under the lock of the queue's row. With a greater limit, a recent count
-- plus what was added since is used. An old count never causes a refusal.
CREATE FUNCTION depth__v(queue text, bound bigint, more bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    q queues;
    began double precision := seconds__v();
    age double precision;
    there bigint;
BEGIN
    IF bound > 1000 THEN
        SELECT * INTO q FROM queues WHERE name = queue;
        age := abs(began - q.counted);
        IF age < least(20 * q.count_seconds, 10) OR (age < 1 AND q.depth + more <= bound) THEN
            RETURN q.depth;
        END IF;
    END IF;
    SELECT count(*) INTO there FROM (SELECT 1 FROM runs r WHERE r.queue = depth__v.queue
        AND r.status = 'queued' LIMIT bound + 10000) counted;
    IF bound > 1000 THEN
        UPDATE queues SET depth = there, counted = began, count_seconds = seconds__v() - began
        WHERE name = (SELECT name FROM queues
            WHERE name = depth__v.queue FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    RETURN there;
END $$;

-- Submit all runs or none. They are inserted first, and rolled back if different work has one of
-- the ids. Which runs are new is only checked if there may not be room for all.
CREATE FUNCTION submit_many__v(commands jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    refusal text;
    outcome text;
    q record;
    depths jsonb;
    depth bigint;
BEGIN
    IF jsonb_array_length(commands) = 0 THEN
        RETURN '[]';
    END IF;
    depths := counted__v(commands);
    IF depths IS NOT NULL THEN
        FOR q IN
            SELECT wanted.name, wanted.more,
                coalesce((SELECT o.depth_max FROM queues o WHERE o.name = wanted.name),
                    wanted.asked) AS bound FROM (
                SELECT v->>5 AS name, count(DISTINCT v->>0) AS more,
                    (array_agg((v->>13)::bigint ORDER BY n))[1] AS asked, min(n) AS first
                FROM jsonb_array_elements(commands) WITH ORDINALITY e(v, n)
                WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = v->>0) GROUP BY v->>5
            ) wanted ORDER BY wanted.first
        LOOP
            CONTINUE WHEN q.bound IS NULL;
            depth := coalesce((depths->>q.name)::bigint, depth__v(q.name, q.bound, q.more));
            IF depth + q.more > q.bound THEN
                refusal := taken__v(commands);
                RETURN CASE WHEN refusal IS NOT NULL THEN refused__v('conflict', refusal)
                            ELSE refused__v('depth',
                                format('%s/%s/%s', depth, q.bound, q.more)) END;
            END IF;
        END LOOP;
    END IF;
    BEGIN
        outcome := enqueue__v(commands, NULL, now);
        IF outcome <> 'true' THEN  -- Some existed.
            refusal := taken__v(commands);
            IF refusal IS NOT NULL THEN
                RAISE EXCEPTION 'undone' USING ERRCODE = 'OL003';
            END IF;
        END IF;
    EXCEPTION WHEN SQLSTATE 'OL003' THEN
        RETURN refused__v('conflict', refusal);
    END;
    RETURN outcome;
END $$;

-- Return NULL if there is room for all runs even if all are new. Otherwise return the depths that
-- were counted, so that the caller does not count them again: counting a full queue is slow. A
-- queue that is named with several limits was counted up to the lowest one.
CREATE FUNCTION counted__v(commands jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    q record;
    depths jsonb := '{}';
    depth bigint;
BEGIN
    FOR q IN
        SELECT asked.name, asked.more, coalesce(o.depth_max, asked.least) AS bound,
            o.depth_max IS NOT NULL OR asked.least = asked.most AS single FROM (
            SELECT v->>5 AS name, count(*) AS more, min((v->>13)::bigint) AS least,
                max((v->>13)::bigint) AS most
            FROM jsonb_array_elements(commands) v GROUP BY 1
        ) asked LEFT JOIN queues o ON o.name = asked.name
    LOOP
        CONTINUE WHEN q.bound IS NULL;
        depth := depth__v(q.name, q.bound, q.more);
        IF q.single THEN
            depths := depths || jsonb_build_object(q.name, depth);
        END IF;
        IF depth + q.more > q.bound THEN
            RETURN depths;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Return the first of these ids that belongs to different work, in the store or earlier in the
-- batch.
CREATE FUNCTION taken__v(commands jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        SELECT id FROM (
            SELECT n, v->>0 AS id, v->>1 AS workflow, v->>2 AS args,
                first_value(v) OVER (PARTITION BY v->>0 ORDER BY n) AS first
            FROM jsonb_array_elements(commands) WITH ORDINALITY e(v, n)
        ) asked LEFT JOIN LATERAL (SELECT r.workflow AS has, r.args AS does FROM runs r
            WHERE r.id = asked.id) there ON true
        WHERE workflow <> coalesce(has, first->>1) OR args <> coalesce(does, first->>2) ORDER BY n
            LIMIT 1);
END $$;
