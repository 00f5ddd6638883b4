-- Claiming runs.

-- worker, token, ids, queues, workflows, limit, returned, suspects, and the floors that the store
-- remembers (see `ready`). The outcome is [runs, floors].
CREATE FUNCTION claim__v(v jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    base bigint := fences_from__v();
    w workers;
BEGIN
    SELECT * INTO w FROM workers WHERE id = v->>0 FOR SHARE;
    IF NOT FOUND THEN
        RETURN refused__v('worker', 'not registered, or swept');
    END IF;
    IF EXISTS (SELECT 1 FROM runs WHERE worker = v->>0 AND token = v->>1) THEN
        RETURN '[' || claimed__v(v->>0, v->>1) || ',null]';
    ELSIF w.draining = 1 THEN
        RETURN refused__v('draining', '');
    ELSIF jsonb_array_length(v->2) > 0 THEN
        PERFORM claim_named__v(v, base, w, now);
        RETURN '[' || coalesce(claimed__v(v->>0, v->>1), '[]') || ',null]';
    END IF;
    RETURN claim_ready__v(v, base, w, now);
END $$;

-- Return the runs that a worker claimed with a token. Rows that would make the answer too long are
-- returned as numbers only.
CREATE FUNCTION claimed__v(who text, by text) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found_all text;
BEGIN
    SELECT '[' || string_agg(CASE WHEN f.before > ANSWER_MAX__v THEN f.short ELSE f.one END, ','
        ORDER BY f.fence) || ']' INTO found_all FROM (
        SELECT o.*, sum(octet_length(o.one)) OVER (ORDER BY o.fence) AS before FROM (
            SELECT r.fence, row__v(r) AS one, json_build_array(r.pk, r.fence)::text AS short
            FROM runs r WHERE r.worker = who AND r.token = claimed__v.by OFFSET 0) o
    ) f;
    RETURN found_all;
END $$;

-- Claim runs by id. Wait for locked runs instead of skipping them.
CREATE FUNCTION claim_named__v(v jsonb, base bigint, w workers, now double precision)
    RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
    q queues;
    left_over bigint := (v->>5)::bigint;
BEGIN
    FOR r IN SELECT * FROM runs WHERE id = ANY(texts__v(v->2)) ORDER BY pk FOR NO KEY UPDATE LOOP
        EXIT WHEN left_over <= 0;
        IF r.status IN ('queued', 'waiting') AND (r.ready <> 0 OR r.due <= now) THEN
            IF r.key IS NOT NULL AND r.undoing IS NULL THEN
                SELECT * INTO q FROM queues WHERE name = r.queue;
                CONTINUE WHEN NOT may_start__v(q, r, now);
            END IF;
            PERFORM assign__v(r, w, v->>1, base, now);
            left_over := left_over - 1;
            IF r.key IS NOT NULL THEN
                SELECT * INTO q FROM queues WHERE name = r.queue;
                PERFORM review_key__v(q, r.key, now, now);
            END IF;
        END IF;
    END LOOP;
END $$;

-- Claim the first ready runs, in the order of the contract. Candidates are read without locks and
-- then locked one by one, so that a concurrent claim can take everything that this one does not.
-- Locked candidates are skipped, and more are read instead. In the common case the first round is
-- one statement that also claims. The outcome is [runs, what to remember (see `ready`)].
CREATE FUNCTION claim_ready__v(v jsonb, base bigint, w workers, now double precision)
    RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wanted bigint := (v->>5)::bigint;
    back_max bigint := least(coalesce((v->>6)::bigint, wanted), wanted);
    state smallint := CASE WHEN (v->>7)::boolean THEN 2 ELSE 1 END;
    floors jsonb := CASE WHEN state = 1 THEN v->8 END;
    walked bigint := walked__v();
    began double precision := seconds__v();
    took double precision;
    rooms jsonb;
    got bigint := 0;
    back bigint := 0;
    tried bigint[] := '{}';
    reach bigint := wanted;
    candidates jsonb;
    firsts jsonb;
    pks bigint[];
    new boolean[];
    claimed text;
    plain boolean;
    more boolean;
    -- The place of the first run that got its turn in this round.
    turned double precision[];
    round int := 0;
    c jsonb;
    r runs;
    q queues;
BEGIN
    more := make_due_ready__v(floors, now);
    IF wanted <= 0 THEN
        RETURN '[[],null]';
    END IF;
    rooms := free_slots__v(v->3);
    IF rooms <> '{}' THEN
        PERFORM review_changed__v(ARRAY(SELECT jsonb_object_keys(rooms)), now);
    ELSE
        SELECT array_agg(f.pk ORDER BY f.rank, f.since, f.due, f.pk),
            array_agg(f.new = 1 ORDER BY f.rank, f.since, f.due, f.pk),
               count(*) FILTER (WHERE f.new = 0), bool_and(f.plain),
               jsonb_agg(jsonb_build_array(f.queue, f.workflow, f.new, f.rank, f.since, f.due, f.pk)
                   ORDER BY f.rank, f.since, f.due, f.pk)
                   FILTER (WHERE (SELECT walked__v() - walked > WALK_MAX__v)) INTO pks, new, back,
                       plain, candidates
        FROM ready__v(v->3, v->4, state, wanted, back_max, rooms, floors) f;
        took := seconds__v() - began;
        walked := walked__v() - walked;
        pks := pks[1:wanted];
        IF coalesce(plain, true) AND back <= back_max THEN
            IF pks IS NOT NULL THEN
                SELECT g.got, g.back, g.tried, g.rows INTO got, back, tried, claimed
                    FROM assign_all__v(pks, new, state, w, v->>1, base, now) g;
            END IF;
            IF got = wanted OR got = coalesce(cardinality(pks), 0) AND got < wanted THEN
                IF state = 1 AND candidates IS NOT NULL THEN
                    firsts := firsts__v(candidates);
                END IF;
                RETURN '[' || coalesce(claimed, '[]') || ',' || scan__v(state, took, walked, more,
                    firsts) || ']';
            END IF;
            tried := coalesce(tried, '{}');
        ELSE
            back := 0;
        END IF;
        walked := walked__v();
        began := seconds__v();
    END IF;
    -- While there is room, also claim runs that get their turn through these claims.
    LOOP
        round := round + 1;
        turned := NULL;
        SELECT jsonb_agg(jsonb_build_array(f.queue, f.workflow, f.new, f.rank, f.since, f.due, f.pk,
            f.parent) ORDER BY f.rank, f.since, f.due, f.pk)
        INTO candidates FROM ready__v(v->3, v->4, state, reach,
            least(back_max + cardinality(tried), reach), rooms, floors) f;
        IF round = 1 THEN
            took := seconds__v() - began;
            walked := walked__v() - walked;
            IF state = 1 AND walked > WALK_MAX__v THEN
                firsts := firsts__v(candidates);
            END IF;
        END IF;
        FOR c IN SELECT value FROM jsonb_array_elements(candidates) LOOP
            EXIT WHEN got = wanted OR turned < ARRAY[(c->>3)::double precision,
                (c->>4)::double precision, (c->>5)::double precision, (c->>6)::double precision];
            CONTINUE WHEN (c->>6)::bigint = ANY(tried) OR (c->>2 = '0' AND back >= back_max)
                       OR (c->>7 IS NULL AND (rooms->>(c->>0))::bigint <= 0);
            tried := tried || (c->>6)::bigint;
            SELECT * INTO r FROM runs WHERE pk = (c->>6)::bigint FOR NO KEY UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND OR r.ready <> state OR (r.interrupted IS NULL) <> (c->>2 = '1');
            IF r.key IS NOT NULL THEN
                IF q.name IS DISTINCT FROM r.queue THEN
                    SELECT * INTO q FROM queues WHERE name = r.queue;
                END IF;
                IF r.undoing IS NULL AND NOT may_start__v(q, r, now) THEN
                    PERFORM review_key__v(q, r.key, NULL, now);
                    CONTINUE;
                END IF;
            END IF;
            IF r.abandon_after IS NOT NULL AND r.undoing IS NULL AND r.cancel IS NULL
                AND r.started IS NOT NULL
               AND coalesce(r.turn, r.due) + r.abandon_after < now THEN
                PERFORM abandon__v(r, now);
            END IF;
            PERFORM assign__v(r, w, v->>1, base, now);
            IF r.key IS NOT NULL THEN
                turned := least(turned, review_key__v(q, r.key, coalesce(r.turn, now), now));
            END IF;
            got := got + 1;
            back := back + (c->>2 = '0')::int;
            IF r.parent IS NULL AND rooms ? r.queue THEN
                rooms := jsonb_set(rooms, ARRAY[r.queue], to_jsonb((rooms->>r.queue)::bigint - 1));
            END IF;
        END LOOP;
        EXIT WHEN got = wanted;
        IF turned IS NULL THEN
            EXIT WHEN round >= 4 OR jsonb_array_length(coalesce(candidates, '[]')) < reach;
            reach := reach * 4;
        END IF;
    END LOOP;
    RETURN '[' || coalesce(claimed__v(v->>0, v->>1), '[]') || ',' || scan__v(state, took, walked,
        more, firsts) || ']';
END $$;

-- Return what the store remembers of a scan.
CREATE FUNCTION scan__v(state smallint, took double precision, walked bigint, more boolean,
    firsts jsonb) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN state = 1 THEN format('[%s,%s,%s]', took, CASE WHEN more THEN 0
        ELSE walked END, coalesce(firsts::text, 'null')) ELSE 'null' END
$$;

-- Return how many index entries this transaction has read. Entries known to be dead are not
-- counted, but pages with nothing else are: each page beyond those that a scan needs to reach its
-- first entry counts as 25.
CREATE FUNCTION walked__v() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ready oid := 'runs_ready'::regclass;
BEGIN
    RETURN pg_stat_get_xact_tuples_returned(ready) + 25 * greatest(
        pg_stat_get_xact_blocks_fetched(ready) - 4 * pg_stat_get_xact_numscans(ready), 0);
END $$;

-- Return the first run of each line.
CREATE FUNCTION firsts__v(candidates jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        SELECT jsonb_agg(f) FROM (
            SELECT DISTINCT ON (f->>0, f->>1, f->>2) f
                FROM jsonb_array_elements(candidates) WITH ORDINALITY e(f, n)
            ORDER BY f->>0, f->>1, f->>2, n) first);
END $$;

-- Return how many more runs may be claimed from each queue that has a limit, is paused or has keys.
-- The rows of these queues are locked.
CREATE FUNCTION free_slots__v(names jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_object_agg(q.name, CASE WHEN q.paused THEN 0
            WHEN q.concurrency_max IS NULL THEN 1e15
            ELSE q.concurrency_max - (
                SELECT count(*) FROM runs r WHERE r.queue = q.name AND r.status = 'running'
                    AND r.parent IS NULL) END), '{}')
        FROM queues q WHERE (q.concurrency_max IS NOT NULL OR q.paused OR q.keyed)
            AND (jsonb_array_length(names) = 0 OR names ? q.name));
END $$;

-- Make runs that are due ready, up to 1,000 at a time, and return whether there may be more. Locked
-- runs are skipped: the call that has locked them makes them ready.
CREATE FUNCTION make_due_ready__v(floors jsonb, now double precision) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    since double precision := coalesce((floors->>0)::double precision, '-infinity');
    came bigint := 0;
BEGIN
    IF EXISTS (SELECT 1 FROM runs WHERE ready = 0 AND status IN ('queued', 'waiting')
        AND due >= since AND due <= now) THEN
        UPDATE runs SET ready = readiness__v(deaths_in_a_row) WHERE pk = ANY(ARRAY(
            SELECT pk FROM runs WHERE ready = 0 AND status IN ('queued', 'waiting') AND due >= since
                AND due <= now
            ORDER BY due, pk LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED));
        GET DIAGNOSTICS came = ROW_COUNT;
    END IF;
    RETURN came = 1000;
END $$;

-- Assign a locked run without a holder to a worker.
CREATE FUNCTION assign__v(r runs, w workers, by text, base bigint, now double precision)
    RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF r.claimed IS NOT NULL THEN
        INSERT INTO executions SELECT (past__v(o)).* FROM runs o WHERE o.pk = r.pk;
    END IF;
    IF r.left_by IS NOT NULL THEN
        INSERT INTO recoveries (drain, run, seconds, by)
        SELECT r.left_by, r.pk, greatest(now - r.left_at, 0), w.id
            WHERE EXISTS (SELECT 1 FROM drains WHERE worker = r.left_by)
        ON CONFLICT (drain, run) DO UPDATE SET seconds = excluded.seconds, by = excluded.by;
    END IF;
    UPDATE runs SET status = 'running', ready = 0, left_by = NULL, left_at = NULL,
        fence = base + nextval('fences'), worker = w.id, token = assign__v.by,
                    claimed = now, claimed_by = w.id, claimed_host = w.host, claimed_pid = w.pid,
                    released = NULL, released_as = NULL,
                    waits = '', lives = lives + 1, started = coalesce(started, now),
                    deadline = CASE WHEN undoing IS NULL THEN coalesce(deadline, now + timeout) END
    WHERE pk = r.pk;
END $$;

-- Return the row that keeps a run's last execution when the next one begins.
CREATE FUNCTION past__v(r runs) RETURNS executions LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(r.pk, abs(r.fence), r.claimed_by, r.claimed_host, r.claimed_pid, r.claimed,
        coalesce(r.released, r.ended), coalesce(r.released_as, r.status), r.reason)::executions
$$;

-- Assign those of these runs that are not locked, have not changed, and need nothing else to be
-- done, in order. `rows` has their fields, or only their numbers where the answer would be too
-- long.
CREATE FUNCTION assign_all__v(pks bigint[], new boolean[], state smallint, w workers, by text,
    base bigint, now double precision,
                            OUT got bigint, OUT back bigint, OUT tried bigint[], OUT rows text)
                                LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    past executions[];
BEGIN
    WITH picked AS MATERIALIZED (
        SELECT r.pk, r.past, k.new, k.n FROM unnest(pks, new) WITH ORDINALITY k(pk, new, n)
            CROSS JOIN LATERAL (
            SELECT o.pk, CASE WHEN o.claimed IS NOT NULL THEN past__v(o) END AS past
            FROM runs o WHERE o.pk = k.pk AND o.ready + 0 = state
                AND (o.interrupted IS NULL) = k.new
            AND o.abandon_after IS NULL AND o.left_by IS NULL FOR NO KEY UPDATE SKIP LOCKED) r
    ), fenced AS MATERIALIZED (SELECT p.pk, p.new, p.past,
            base + nextval('fences') AS fence
        FROM (SELECT * FROM picked ORDER BY n) p
    ), held AS (
        UPDATE runs SET status = 'running', ready = 0, fence = f.fence, worker = w.id,
            token = assign_all__v.by,
            claimed = now, claimed_by = w.id, claimed_host = w.host, claimed_pid = w.pid,
            released = NULL, released_as = NULL,
            waits = '', lives = lives + 1,
                        started = coalesce(started, now), deadline = CASE WHEN undoing IS NULL
                            THEN coalesce(deadline, now + timeout) END
        FROM fenced f WHERE runs.pk = ANY(pks) AND runs.pk = f.pk
            RETURNING runs.pk, f.new, f.past, runs.fence, brief__v(runs) AS one
    ) SELECT count(*), count(*) FILTER (WHERE NOT h.new), array_agg(h.pk),
             '[' || string_agg(CASE WHEN h.long > ANSWER_MAX__v
                 THEN concat('[', h.pk, ',', h.fence, ']') ELSE h.one END, ','
                     ORDER BY h.fence) || ']', array_agg(h.past) FILTER (WHERE (h.past).run > 0)
      INTO got, back, tried, rows, past
      FROM (
          SELECT held.*,
              sum(octet_length(held.one)) OVER (ORDER BY held.fence ROWS UNBOUNDED PRECEDING) AS long
          FROM held
      ) h;
    IF past IS NOT NULL THEN
        INSERT INTO executions SELECT * FROM unnest(past);
    END IF;
END $$;

-- Return candidates for a claim. They are read line by line: a line is one workflow of a queue,
-- separately for interrupted and for new runs, and costs one index seek. While another transaction
-- stays open, the index keeps an entry for every run claimed since, and each scan would read all of
-- them. So a store whose scans are slow remembers the first run of each line, and its next scans
-- begin there, until it reads everything again. `floors` is [time since which runs came due,
-- [[queue, workflow, new, rank, since, due, pk], …]]. A `plain` candidate needs nothing but to be
-- assigned. `workflows` NULL means all, and an empty list all but batches.
CREATE FUNCTION ready__v(names jsonb, workflows jsonb, state smallint, reach bigint,
    back_max bigint, rooms jsonb, floors jsonb)
RETURNS TABLE (queue text, workflow text, new int, rank bigint, since double precision,
    due double precision, pk bigint, parent text, plain boolean)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    here text[] := texts__v(names);
    known text[] := texts__v(workflows);
    lines_here lines[] := ARRAY(
        SELECT l FROM lines l WHERE (cardinality(here) = 0 OR l.queue = ANY(here))
          AND CASE WHEN workflows IS NULL THEN true WHEN cardinality(known) = 0
              THEN l.workflow <> '(each)' ELSE l.workflow = ANY(known) END);
BEGIN
    RETURN QUERY
        SELECT l.queue, l.workflow, lane.new, c.rank, c.since, c.due, c.pk, c.parent, c.plain
        FROM unnest(lines_here) l CROSS JOIN (VALUES (0, back_max), (1, reach)) lane(new, most)
        LEFT JOIN LATERAL (SELECT (f->>3)::bigint AS rank, (f->>4)::double precision AS since,
            (f->>5)::double precision AS due, (f->>6)::bigint AS pk
                           FROM jsonb_array_elements(floors->1) f
                           WHERE f->>0 = l.queue AND f->>1 = l.workflow AND (f->>2)::int = lane.new
                               LIMIT 1) start ON true
        CROSS JOIN LATERAL (
            SELECT -r.priority AS rank, coalesce(r.interrupted, 1e12) AS since,
                coalesce(r.turn, r.due) AS due, r.pk, r.parent,
                   r.abandon_after IS NULL AND r.left_by IS NULL AS plain
            FROM runs r WHERE r.ready > 0 AND r.queue = l.queue AND r.workflow = l.workflow
                AND r.ready = state
              AND (CASE WHEN r.interrupted IS NULL THEN 1 ELSE 0 END) = lane.new
              AND (-r.priority, coalesce(r.interrupted, 1e12), coalesce(r.turn, r.due), r.pk)
                  >= (coalesce(start.rank, -9223372036854775807),
                      coalesce(start.since, '-infinity'), coalesce(start.due, '-infinity'),
                          coalesce(start.pk, 0))
            ORDER BY -r.priority, coalesce(r.interrupted, 1e12), coalesce(r.turn, r.due), r.pk
            LIMIT lane.most
        ) c
        WHERE coalesce((rooms->>l.queue)::bigint, 1) > 0;
    IF EXISTS (SELECT 1 FROM jsonb_each_text(rooms) room WHERE room.value::bigint < reach) THEN
        -- Children take no slot of their queue. Their parents do, and may wait for them.
        RETURN QUERY
            SELECT c.queue, c.workflow, lane.new, -c.priority, coalesce(c.interrupted, 1e12), c.due,
                c.pk, c.parent, false
            FROM unnest(lines_here) l CROSS JOIN (VALUES (0, back_max), (1, reach)) lane(new, most)
            CROSS JOIN LATERAL (
                SELECT * FROM runs r
                WHERE r.ready + 0 > 0 AND coalesce(r.parent, '') <> '' AND r.queue = l.queue
                    AND r.workflow = l.workflow AND r.ready = state
                  AND (CASE WHEN r.interrupted IS NULL THEN 1 ELSE 0 END) = lane.new
                ORDER BY -r.priority, coalesce(r.interrupted, 1e12), r.due, r.pk LIMIT lane.most
            ) c
            WHERE (rooms->>l.queue)::bigint < reach;
    END IF;
END $$;

-- Begin to compensate a run that no worker has claimed for too long, if a worker could have: one
-- that is alive and has claimed from the run's queue, for its workflow, since the run was due.
CREATE FUNCTION abandon__v(r runs, now double precision) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    since double precision := greatest(coalesce(r.turn, r.due), awake__v(now));
    seconds double precision := now - since;
    name text := CASE WHEN strpos(r.id, '''') > 0 AND strpos(r.id, '"') = 0
        THEN '"' || replace(r.id, '\', '\\') || '"'
                      ELSE '''' || replace(replace(r.id, '\', '\\'), '''', '\''') || '''' END;
    error text;
BEGIN
    IF since + r.abandon_after >= now OR NOT EXISTS (
        SELECT 1 FROM workers w
        WHERE w.draining = 0 AND w.started <= r.due AND w.queues::jsonb ? r.queue
            AND (w.workflows = '[]' OR w.workflows::jsonb ? r.workflow)
          AND w.id NOT IN (SELECT d.worker FROM dying__v(now) d)) THEN
        RETURN;
    END IF;
    -- The same as `encode_error(Abandoned(id, seconds))`.
    error := json_build_object(
        'type', 'outlast.errors:Abandoned',
        'message', format('run %s was abandoned: no worker took it for %s seconds, and its effects were compensated. Start it again with `outlast retry %s`.',
                          name, to_char(seconds, 'FM999,999,999,990.0'), r.id),
        'args', json_build_array(r.id, seconds),
        'state', json_build_object('id', r.id, 'reason', '', 'seconds', seconds))::text;
    PERFORM begin_undo__v(r,
        '{"status": "failed", "value": null, "error": ' || to_json(error)::text || ', "reason": null, "failed_at": null}', now);
END $$;

-- Return what a claim would find: [time, next due time of runs that are not ready, first ready run
-- of each line, workflows of suspects, seconds the scan took, index entries it read].
CREATE FUNCTION peek__v(names jsonb, floors jsonb, at double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
DECLARE
    began double precision := seconds__v();
    walked bigint := walked__v() + pg_stat_get_xact_tuples_returned('runs_later'::regclass);
    soonest double precision;
    ready jsonb;
    suspects jsonb;
BEGIN
    SELECT r.due INTO soonest FROM runs r
    WHERE r.ready = 0 AND r.status IN ('queued', 'waiting')
        AND r.due >= coalesce((floors->>0)::double precision, '-infinity')
    ORDER BY r.due, r.pk LIMIT 1;
    -- A key to review may make runs ready.
    soonest := least(soonest, (SELECT min(c.at) FROM unnest(texts__v(names)) n CROSS JOIN LATERAL (
        SELECT o.at FROM key_changes o WHERE o.queue = n ORDER BY o.at LIMIT 1) c));
    SELECT jsonb_agg(jsonb_build_array(f.queue, f.workflow, f.new, f.rank, f.since, f.due,
        f.pk)) INTO ready
    FROM ready__v(names, NULL, 1::smallint, 1, 1, '{}', floors) f;
    SELECT jsonb_agg(DISTINCT f.workflow) INTO suspects
        FROM ready__v(names, NULL, 2::smallint, 1, 1, '{}', NULL) f;
    walked := walked__v() + pg_stat_get_xact_tuples_returned('runs_later'::regclass) - walked;
    RETURN json_build_array(coalesce(at, seconds__v()), soonest, ready, suspects,
        seconds__v() - began, walked);
END $$;
