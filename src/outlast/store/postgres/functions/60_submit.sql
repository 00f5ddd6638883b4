-- Runs that come in. id, workflow, args, token, seed, queue, priority, delay, timeout, parent,
-- worker, attempts_max, interruptions_max, depth_max, abandon_after, by, key, replace

-- One that a worker begins at once.
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
    LOOP  -- a run that is in the way may be pruned before it is read
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
            PERFORM list__v(ARRAY[v->>5], ARRAY[v->>1], NULL);
            RETURN '[' || row__v(r) || ',true]';
        END IF;
        SELECT * INTO r FROM runs WHERE id = v->>0;
        IF FOUND THEN
            RETURN '[' || row__v(r) || ',' || (r.token IS NOT DISTINCT
                FROM v->>3 AND r.worker IS NOT DISTINCT FROM v->>10)::text || ']';
        END IF;
    END LOOP;
END $$;

-- Queues and workflows that are there from now on; `more`: how many were put in. A count that goes
-- on (see `depth`) is told of them, unless somebody else tells it just now.
CREATE FUNCTION list__v(names text[], workflows text[], more bigint[]) RETURNS void
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

-- Each for itself: joined if it is there, refused if there is a refusal at its place, else inserted
-- with the others. Their numbers are drawn in their order, but they are inserted in the order of
-- their ids, in which nobody waits for one who waits for him. One that is joined is not locked, and
-- one that may be replaced was locked before.
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
        PERFORM list__v(names, workflows, more);
        RETURN 'true';
    END IF;
    IF wrote > 0 THEN
        -- nobody else was given these numbers
        inserted := ARRAY(SELECT pk FROM runs WHERE pk = ANY(fresh) ORDER BY pk);
        SELECT array_agg(g.queue), array_agg(g.workflow), array_agg(g.more) INTO names, workflows,
            more FROM (
            SELECT o.queue, o.workflow, count(*) AS more FROM runs o WHERE o.pk = ANY(inserted)
                GROUP BY 1, 2) g;
        PERFORM list__v(names, workflows, more);
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
            IF NOT FOUND THEN  -- pruned in between: the batch is tried again as a whole
                RAISE EXCEPTION 'a run went while it was joined' USING ERRCODE = 'serialization_failure';
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

-- Let a run that waits for its first claim become another submission. False: it does not wait for
-- it any more, or is other work.
CREATE FUNCTION replace__v(run runs, v jsonb, now double precision) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- the trigger puts a run with a key into its lane
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
        -- it may have given up its turn
        INSERT INTO key_changes (queue, key, at) VALUES (run.queue, run.key, 0);
    END IF;
    RETURN true;
END $$;

-- Which of them have no room: at their places "depth/limit/needed". NULL: all have.
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
        CONTINUE WHEN t.same IS NOT NULL AND refusals[t.same] IS NULL;  -- it joins that one
        bound := coalesce((SELECT depth_max FROM queues WHERE name = t.queue), t.asked);
        IF bound IS NULL THEN  -- it counts for those behind it that have one
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

-- How many are queued, for one who wants to put in `more`. A limit of up to 1,000 is counted each
-- time, under the lock of the queue's row. A greater one goes by what was counted lately and was
-- put in since; nobody is refused by a count that is old.
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

-- Everything or nothing: inserted first, looked at then, and undone where other work has an id.
-- Which of them are new is asked only where there may not be room for all.
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
        IF outcome <> 'true' THEN  -- some were there
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

-- NULL: there is room for all of them, were they all new. Else how many are queued, of the queues
-- that were counted, for whoever has to look at each: counting a full queue is what its submitters
-- wait for. One that is asked for with several limits was counted up to the least of them.
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

-- The first of these ids that other work has, in the store or before it in here.
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
