-- Workers: registering, renewing, deregistering, and sweeping the dead.

-- worker, host, pid, lease, queues, workflows, concurrency
CREATE FUNCTION register_worker__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO workers (id, host, pid, started, lease_until, lease, renewed, queues, workflows,
        concurrency)
    VALUES (v->>0, v->>1, (v->>2)::bigint, now, now + (v->>3)::double precision,
        (v->>3)::double precision, now,
            v->>4, v->>5, (v->>6)::bigint)
    ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, lease = excluded.lease,
        renewed = excluded.renewed,
        queues = excluded.queues, workflows = excluded.workflows,
            concurrency = excluded.concurrency;
    PERFORM beat__v(now);
    RETURN NULL;
END $$;

-- worker, lease, draining
CREATE FUNCTION renew__v(v jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE workers SET lease_until = now + (v->>1)::double precision,
        lease = (v->>1)::double precision, renewed = now,
                       draining = greatest(draining, (v->>2)::boolean::int::smallint)
    WHERE id = v->>0;
    IF FOUND THEN
        PERFORM beat__v(now);
        RETURN NULL;
    ELSE
        RETURN refused__v('worker', 'swept');
    END IF;
END $$;

-- worker
CREATE FUNCTION deregister_worker__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
    after runs;
    drains boolean;
BEGIN
    drains := EXISTS (SELECT 1 FROM workers WHERE id = v->>0 AND draining = 1);
    FOREACH r IN ARRAY takeable__v(v->>0, '{}') LOOP
        r := after_progress__v(r);
        after := r;
        after.status := 'queued';
        after.due := now;
        after.reason := 'its worker left';
        PERFORM interrupt__v(r, after, drains, now, 'leave', now);
    END LOOP;
    IF EXISTS (SELECT 1 FROM runs WHERE worker = v->>0) THEN
        -- A sweep takes the locked runs, as interrupted.
        UPDATE workers SET draining = 1 WHERE id = v->>0;
    ELSE
        DELETE FROM workers WHERE id = v->>0;
    END IF;
    RETURN NULL;
END $$;

-- Return the time since which signs of life have come without a gap of more than half a lease. A
-- step back of the clock by less than a second is ignored, because calls overlap.
CREATE FUNCTION awake__v(now double precision) RETURNS double precision
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN now - beat > -1
            AND now - beat <= (SELECT coalesce(min(lease), 0) FROM workers) / 2 THEN awake
                ELSE now END FROM pulse);
END $$;

-- Record a sign of life, unless another call is recording one now.
CREATE FUNCTION beat__v(now double precision) RETURNS double precision
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    since double precision;
BEGIN
    PERFORM 1 FROM pulse FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN awake__v(now);
    END IF;
    since := awake__v(now);
    IF since = now THEN
        UPDATE workers SET lease_until = now + lease
        WHERE id IN (SELECT id FROM workers WHERE lease_until > now + lease + 1
            ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
        UPDATE pulse SET beat = now, awake = since;
    ELSE
        UPDATE pulse SET beat = greatest(beat, now), awake = since;
    END IF;
    RETURN since;
END $$;

-- Return the workers that seem dead, and why. An expired lease is no proof: see `sweep`. A worker
-- has died if nobody holds its lock and its last three heartbeats are missing, on the server that
-- had the last one. A worker without a heartbeat on record is not judged by this. `seen` is the
-- last sign of life, and `seen_by` how it was noticed.
CREATE FUNCTION dying__v(now double precision)
RETURNS TABLE (worker text, lease double precision, draining boolean, why text,
    seen double precision, seen_by text)
LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
DECLARE
    silent text[] := ARRAY(
        SELECT p.worker FROM presence p
        WHERE abs(seconds__v() - p.beat) > greatest(3 * p.every, GRACE__v)
            AND p.server = pg_postmaster_start_time()
          AND (EXISTS (SELECT 1 FROM workers w WHERE w.id = p.worker)));
BEGIN
    IF cardinality(silent) > 0 THEN
        silent := ARRAY(
            SELECT s FROM unnest(silent) s WHERE NOT EXISTS (
                SELECT 1 FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND (l.classid::bigint << 32 | l.objid::bigint) = key__v('worker', s)));
    END IF;
    RETURN QUERY
        SELECT w.id, w.lease, w.draining = 1,
               CASE WHEN w.id = ANY(silent) THEN 'its worker died'
                   ELSE 'its worker''s lease ran out' END,
               least(now, CASE WHEN w.id = ANY(silent)
                   THEN greatest(w.renewed, now - seconds__v() + (
                   SELECT p.beat FROM presence p WHERE p.worker = w.id)) ELSE w.renewed END),
               CASE WHEN w.id = ANY(silent) THEN 'lock' ELSE 'lease' END
        FROM workers w WHERE w.id = ANY(silent) OR w.lease_until <= now
        UNION ALL
        SELECT h.worker, NULL, false, 'its worker is no longer registered', now, 'sweep'
            FROM holders__v() h
        WHERE NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = h.worker);
END $$;

-- Return the workers that hold runs, with one index seek for each.
CREATE FUNCTION holders__v() RETURNS TABLE (worker text) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
        WITH RECURSIVE held AS (
            (SELECT r.worker FROM runs r WHERE r.worker IS NOT NULL ORDER BY r.worker LIMIT 1)
            UNION ALL
            SELECT (SELECT r.worker FROM runs r WHERE r.worker IS NOT NULL
                AND r.worker > held.worker ORDER BY r.worker LIMIT 1)
            FROM held WHERE held.worker IS NOT NULL
        ) SELECT held.worker FROM held WHERE held.worker IS NOT NULL;
END $$;

-- Sweep dead workers. The lock phase has locked the workers that seemed dead; those that still do
-- are dead. All others are left for the next sweep.
CREATE FUNCTION sweep__v(backoff double precision, backoff_max double precision,
    now double precision)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    awake double precision := beat__v(now);
    w record;
    taken text[];
    gone text[];
    swept text[] := '{}';
    dead text[] := '{}';
    removed text[] := '{}';
BEGIN
    FOR w IN SELECT d.* FROM dying__v(now) d ORDER BY d.worker LOOP
        IF w.why = 'its worker''s lease ran out' THEN
            IF awake + w.lease > now THEN
                CONTINUE;
            END IF;
            PERFORM 1 FROM workers WHERE id = w.worker
                AND lease_until <= now FOR NO KEY UPDATE SKIP LOCKED;
        ELSIF w.why = 'its worker died' THEN
            PERFORM 1 FROM workers WHERE id = w.worker FOR NO KEY UPDATE SKIP LOCKED;
        ELSE
            -- Unless it has registered since. It cannot register again before this call ends.
            INSERT INTO workers (id, host, pid, started, lease_until, lease, renewed)
                VALUES (w.worker, '', 0, now, now, 0, now)
            ON CONFLICT DO NOTHING;
        END IF;
        IF NOT FOUND THEN
            CONTINUE;
        END IF;
        IF w.why = 'its worker''s lease ran out' AND NOT w.draining
            AND store_was_away__v(w.worker, now) THEN
            w.why := 'the store was away, and its worker did not come back';
        END IF;
        IF w.draining THEN
            -- Missing only if a renewal was the first to say that the worker drains.
            PERFORM open_report__v(w.worker, '', now);
        END IF;
        SELECT * INTO taken, gone FROM take_runs__v(w.worker, w.why, w.seen, w.seen_by, w.draining,
            backoff, backoff_max, now);
        swept := swept || taken;
        dead := dead || gone;
        -- The next sweep takes runs that are locked now.
        IF EXISTS (SELECT 1 FROM runs WHERE worker = w.worker) THEN
            UPDATE workers SET partly_swept = true WHERE id = w.worker;
            CONTINUE;
        END IF;
        IF w.draining THEN
            UPDATE drains SET ended = now, swept = true,
                report = json_build_object('cut_short', true, 'left', taken, 'why', w.why, 'seen',
                    w.seen)::text
            WHERE worker = w.worker AND ended IS NULL;
        END IF;
        DELETE FROM workers WHERE id = w.worker;
        DELETE FROM presence WHERE worker = w.worker;
        removed := removed || w.worker;
    END LOOP;
    RETURN json_build_array(swept, dead, removed);
END $$;

-- Return whether the server has started since a worker's last sign of life. If so, the worker may
-- have ended because it could not write.
CREATE FUNCTION store_was_away__v(holder text, now double precision) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    up_since double precision := extract(epoch FROM pg_postmaster_start_time());
BEGIN
    RETURN up_since <= now AND EXISTS (SELECT 1 FROM workers WHERE id = holder
        AND renewed < up_since);
END $$;

-- Take all runs from a dead worker.
CREATE FUNCTION take_runs__v(holder text, why text, seen double precision, by text, drains boolean,
    backoff double precision,
                        backoff_max double precision, now double precision, OUT taken text[],
                            OUT dead text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    held runs[] := takeable__v(holder, '{}');
    ids text[];
    above text[];
    partly boolean := coalesce((SELECT partly_swept FROM workers WHERE id = holder), false);
    r runs;
    after runs;
    status text;
    charged bigint[] := '{}';
BEGIN
    SELECT coalesce(array_agg(h.id ORDER BY h.pk), '{}'),
        coalesce(array_agg(h.parent ORDER BY h.pk), '{}') INTO ids, above
    FROM runs h WHERE h.worker = holder;  -- including those that cannot be taken now
    taken := '{}';
    dead := '{}';
    FOREACH r IN ARRAY held LOOP
        IF drains OR why = 'the store was away, and its worker did not come back' THEN
            r := after_progress__v(r);
            after := r;
            after.status := 'queued';
            after.due := now;
            after.reason := why || CASE WHEN drains THEN ' while it was draining' ELSE '' END;
            status := interrupt__v(r, after, drains, seen, by, now);
        ELSE
            IF (r.id = ANY(above)) IS NOT TRUE AND NOT progress__v(r) THEN
                charged := charged || r.pk;
            END IF;
            status := charge_death__v(r, why, r.id = ANY(above), NOT partly
                AND cardinality(ids) = ancestry__v(r.id, ids, above), backoff, backoff_max, now);
            PERFORM mark__v(r, 'death', '',
                json_build_object('worker', holder, 'why', why, 'seen', seen, 'by', by)::text, NULL,
                    now);
        END IF;
        taken := taken || r.id;
        IF status = 'dead' THEN
            dead := dead || r.id;
        END IF;
    END LOOP;
    -- The worker's first sweep has recorded its death.
    IF NOT drains AND NOT partly
        AND why <> 'the store was away, and its worker did not come back' THEN
        PERFORM record_death__v(holder, charged, now);
    END IF;
END $$;

-- Return how many of these runs are the run itself or its ancestors.
CREATE FUNCTION ancestry__v(id text, ids text[], above text[]) RETURNS bigint
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    line text[] := ARRAY[id];
    place int;
BEGIN
    LOOP
        id := above[array_position(ids, id)];
        EXIT WHEN id IS NULL OR array_position(ids, id) IS NULL OR id = ANY(line);
        line := line || id;
    END LOOP;
    RETURN cardinality(line);
END $$;

-- Release a run whose worker died, and charge it for the death unless it is innocent. Return its
-- new status.
CREATE FUNCTION charge_death__v(r runs, why text, parent boolean, alone boolean, backoff double precision,
    backoff_max double precision,
                       now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    innocent boolean := progress__v(r);
    doubled double precision;
    after runs;
BEGIN
    IF innocent THEN
        r.deaths_in_a_row := 0;
        r.interruptions_in_a_row := 0;
    END IF;
    after := r;
    after.status := 'queued';
    after.due := now;
    after.reason := why;
    after.deaths := r.deaths + 1;
    innocent := innocent OR coalesce(parent, false);
    IF innocent THEN
        after.deaths_in_a_row := 0;
    ELSIF alone OR r.deaths_in_a_row < SUSPECT_DEATHS__v THEN
        after.deaths_in_a_row := r.deaths_in_a_row + 1;
    END IF;
    IF after.deaths_in_a_row < SUSPECT_DEATHS__v THEN
        after.interrupted := coalesce(r.interrupted, now);
    ELSE
        doubled := 2::double precision ^ least(after.deaths_in_a_row - SUSPECT_DEATHS__v, 60);
        after.due := now + CASE WHEN backoff > backoff_max / doubled THEN backoff_max
            ELSE backoff * doubled END;
    END IF;
    IF alone AND NOT innocent AND is_final__v(r, after.deaths_in_a_row, now) THEN
        after.reason := format('died %s without recording anything; the last time: %s',
            times__v(after.deaths_in_a_row), why);
        after.status := 'dead';
    END IF;
    RETURN release_run__v(r, after, now);
END $$;
