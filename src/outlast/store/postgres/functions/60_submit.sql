-- Runs that come in.
-- id, workflow, args, token, seed, queue, priority, delay, timeout, parent, worker, attempts_max, interruptions_max, depth_max, abandon_after

CREATE FUNCTION submit__v(verbs jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v jsonb;
    outcomes text[];
BEGIN
    IF verbs->0->>10 IS NULL THEN  -- they are all alike
        RETURN enqueue__v(verbs, true, now);
    END IF;
    PERFORM ready_fences__v();
    FOR v IN SELECT value FROM jsonb_array_elements(verbs) LOOP
        outcomes := outcomes || submit_owned__v(v, now);
    END LOOP;
    RETURN '[' || array_to_string(outcomes, ',') || ']';
END $$;

CREATE FUNCTION submit_owned__v(v jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    standing smallint;
    r runs;
BEGIN
    SELECT draining INTO standing FROM workers WHERE id = v->>10 FOR SHARE;
    IF NOT FOUND THEN
        RETURN refused__v('worker', 'not enlisted, or swept');
    END IF;
    IF standing = 1 THEN
        r := run__v(v->>0);
        IF r.token = v->>3 AND r.worker = v->>10 THEN
            RETURN '[' || row__v(r) || ',true]';
        END IF;
        RETURN refused__v('draining', '');
    END IF;
    LOOP  -- a run that is in the way may be pruned before it is read
        INSERT INTO runs (pk, id, workflow, args, queue, priority, status, fence, worker, token, seed, parent, attempts_max,
                          interruptions_max, created, started, due, timeout, deadline, abandon_after, lives)
        VALUES (nextval('numbers'), v->>0, v->>1, v->>2, v->>5, (v->>6)::bigint, 'running', nextval('fences'), v->>10, v->>3, v->>4,
                v->>9, (v->>11)::bigint, (v->>12)::bigint, now, now, now, (v->>8)::double precision, now + (v->>8)::double precision,
                (v->>14)::double precision, 1)
        ON CONFLICT (id) DO NOTHING RETURNING * INTO r;
        IF FOUND THEN
            PERFORM list__v(ARRAY[v->>5], ARRAY[v->>1]);
            RETURN '[' || row__v(r) || ',true]';
        END IF;
        r := run__v(v->>0);
        IF r.pk IS NOT NULL THEN
            RETURN '[' || row__v(r) || ',' || (r.token IS NOT DISTINCT FROM v->>3 AND r.worker IS NOT DISTINCT FROM v->>10)::text || ']';
        END IF;
    END LOOP;
END $$;

-- Queues and workflows that are there from now on.
CREATE FUNCTION list__v(names text[], workflows text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO lines (queue, workflow)
    SELECT DISTINCT n, w FROM unnest(names, workflows) t(n, w)
    WHERE NOT EXISTS (SELECT 1 FROM lines l WHERE l.queue = n AND l.workflow = w) ORDER BY 1, 2
    ON CONFLICT DO NOTHING;
    INSERT INTO queues AS q (name, listed)
    SELECT DISTINCT n, true FROM unnest(names) n
    WHERE NOT EXISTS (SELECT 1 FROM queues o WHERE o.name = n AND o.listed) ORDER BY 1
    ON CONFLICT (name) DO UPDATE SET listed = true WHERE NOT q.listed;
END $$;

-- Each for itself: joined if it is there, refused if its queue is full, else inserted with the others. Their numbers are drawn in their order, but
-- they are inserted in the order of their ids, in which nobody waits for one who waits for him.
CREATE FUNCTION enqueue__v(verbs jsonb, limited boolean, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    refusals jsonb := CASE WHEN limited THEN full__v(verbs, now) END;
    fresh bigint[];
    inserted bigint[];
    outcomes text[];
    t record;
    r runs;
BEGIN
    fresh := ARRAY(SELECT CASE WHEN refusals ? (n - 1)::text THEN NULL ELSE nextval('numbers') END
                   FROM generate_series(1, jsonb_array_length(verbs)) n ORDER BY n);
    WITH new AS (
        INSERT INTO runs (pk, id, workflow, args, queue, priority, status, fence, token, seed, parent, attempts_max,
                          interruptions_max, created, due, timeout, abandon_after, ready)
        SELECT fresh[n], v->>0, v->>1, v->>2, v->>5, (v->>6)::bigint, 'queued', 0, v->>3, v->>4, v->>9, (v->>11)::bigint, (v->>12)::bigint,
               now, now + (v->>7)::double precision, (v->>8)::double precision, (v->>14)::double precision,
               CASE WHEN (v->>7)::double precision <= 0 THEN 1 ELSE 0 END
        FROM jsonb_array_elements(verbs) WITH ORDINALITY e(v, n) WHERE fresh[n] IS NOT NULL ORDER BY (v->>0) COLLATE "C", n
        ON CONFLICT (id) DO NOTHING RETURNING pk
    ) SELECT array_agg(pk) INTO inserted FROM new;
    PERFORM list__v(array_agg(v->>5), array_agg(v->>1)) FROM jsonb_array_elements(verbs) WITH ORDINALITY e(v, n)
    WHERE fresh[n] = ANY(inserted);
    IF cardinality(inserted) = jsonb_array_length(verbs) THEN
        RETURN 'true';
    END IF;
    FOR t IN SELECT v, n FROM jsonb_array_elements(verbs) WITH ORDINALITY e(v, n) ORDER BY n LOOP
        IF refusals ? (t.n - 1)::text THEN
            outcomes := outcomes || refused__v('depth', refusals->>(t.n - 1)::text);
        ELSIF fresh[t.n] = ANY(inserted) THEN
            outcomes := outcomes || '[null,true]'::text;
        ELSE
            r := run__v(t.v->>0);
            IF r.pk IS NULL THEN  -- pruned in between: the batch is tried again as a whole
                RAISE EXCEPTION 'a run went while it was joined' USING ERRCODE = 'serialization_failure';
            END IF;
            outcomes := outcomes || ('[' || row__v(r) || ','
                || (r.token IS NOT DISTINCT FROM t.v->>3 AND r.status = 'queued' AND r.lives = 0)::text || ']');
        END IF;
    END LOOP;
    RETURN '[' || array_to_string(outcomes, ',') || ']';
END $$;

-- Which of them have no room, by their place: "depth/limit/needed".
CREATE FUNCTION full__v(verbs jsonb, now double precision) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t record;
    bound bigint;
    depths jsonb := '{}';
    depth bigint;
    taken text[] := '{}';
    refusals jsonb := '{}';
BEGIN
    IF NOT EXISTS (SELECT 1 FROM jsonb_array_elements(verbs) v
                   WHERE v->>13 IS NOT NULL OR EXISTS (SELECT 1 FROM queues WHERE name = v->>5 AND depth_max IS NOT NULL)) THEN
        RETURN '{}';
    END IF;
    FOR t IN SELECT v->>0 AS id, v->>5 AS queue, (v->>13)::bigint AS asked, n FROM jsonb_array_elements(verbs) WITH ORDINALITY e(v, n) ORDER BY n LOOP
        bound := coalesce((SELECT depth_max FROM queues WHERE name = t.queue), t.asked);
        IF t.id = ANY(taken) OR EXISTS (SELECT 1 FROM runs r WHERE r.id = t.id) THEN
            CONTINUE;
        END IF;
        IF bound IS NOT NULL THEN
            depth := coalesce((depths->>t.queue)::bigint, depth__v(t.queue, bound, now));
            IF depth + 1 > bound THEN
                refusals := refusals || jsonb_build_object((t.n - 1)::text, format('%s/%s/1', depth, bound));
                depths := depths || jsonb_build_object(t.queue, depth);
                CONTINUE;
            END IF;
            depths := depths || jsonb_build_object(t.queue, depth + 1);
        END IF;
        taken := taken || t.id;
    END LOOP;
    RETURN refusals;
END $$;

CREATE FUNCTION exact__v(own bigint, asked bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(own, asked) <= 1000
$$;

-- How many are queued. A limit of up to 1,000 is counted each time, under the lock of the queue's row. A greater one goes by what was counted lately.
CREATE FUNCTION depth__v(queue text, bound bigint, now double precision) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    q queues;
    began double precision;
    there bigint;
BEGIN
    SELECT * INTO q FROM queues WHERE name = queue;
    IF bound > 1000 AND q.name IS NOT NULL AND abs(now - q.counted) < least(greatest(1, 20 * q.count_seconds), 10) THEN
        RETURN q.depth;
    END IF;
    began := seconds__v();
    SELECT count(*) INTO there FROM (SELECT 1 FROM runs r WHERE r.queue = depth__v.queue AND r.status = 'queued' LIMIT bound + 10000) counted;
    IF bound > 1000 THEN
        UPDATE queues SET depth = there, counted = now, count_seconds = seconds__v() - began
        WHERE name = (SELECT name FROM queues WHERE name = depth__v.queue FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    RETURN there;
END $$;

-- Everything or nothing: inserted first, looked at then, and undone where other work has an id.
CREATE FUNCTION submit_many__v(verbs jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v jsonb;
    outcomes text[];
BEGIN
    FOR v IN SELECT value->0 FROM jsonb_array_elements(verbs) LOOP
        outcomes := outcomes || CASE WHEN jsonb_array_length(v) = 0 THEN '[]' ELSE submit_together__v(v, now) END;
    END LOOP;
    RETURN '[' || array_to_string(outcomes, ',') || ']';
END $$;

CREATE FUNCTION submit_together__v(verbs jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    refusal text;
    outcome text;
    q record;
BEGIN
    refusal := taken__v(verbs);
    IF refusal IS NOT NULL THEN
        RETURN refused__v('conflict', refusal);
    END IF;
    FOR q IN
        SELECT wanted.name, wanted.more, coalesce((SELECT o.depth_max FROM queues o WHERE o.name = wanted.name), wanted.asked) AS bound FROM (
            SELECT v->>5 AS name, count(DISTINCT v->>0) AS more, (array_agg((v->>13)::bigint ORDER BY n))[1] AS asked, min(n) AS first
            FROM jsonb_array_elements(verbs) WITH ORDINALITY e(v, n)
            WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = v->>0) GROUP BY v->>5
        ) wanted ORDER BY wanted.first
    LOOP
        IF q.bound IS NOT NULL AND depth__v(q.name, q.bound, now) + q.more > q.bound THEN
            RETURN refused__v('depth', format('%s/%s/%s', depth__v(q.name, q.bound, now), q.bound, q.more));
        END IF;
    END LOOP;
    BEGIN
        outcome := enqueue__v(verbs, false, now);
        refusal := taken__v(verbs);
        IF refusal IS NOT NULL THEN
            RAISE EXCEPTION 'undone' USING ERRCODE = 'OL003';
        END IF;
    EXCEPTION WHEN SQLSTATE 'OL003' THEN
        RETURN refused__v('conflict', refusal);
    END;
    RETURN outcome;
END $$;

-- The first of these ids that other work has, in the store or before it in here.
CREATE FUNCTION taken__v(verbs jsonb) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT id FROM (
        SELECT n, v->>0 AS id, v->>1 AS workflow, v->>2 AS args, first_value(v) OVER (PARTITION BY v->>0 ORDER BY n) AS first
        FROM jsonb_array_elements(verbs) WITH ORDINALITY e(v, n)
    ) asked LEFT JOIN LATERAL (SELECT r.workflow AS has, r.args AS does FROM runs r WHERE r.id = asked.id) there ON true
    WHERE workflow <> coalesce(has, first->>1) OR args <> coalesce(does, first->>2) ORDER BY n LIMIT 1
$$;
