-- Limits, what is old, and who is present.

-- queue, depth_max, concurrency_max
CREATE FUNCTION limit__v(verbs jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v jsonb;
BEGIN
    FOR v IN SELECT value FROM jsonb_array_elements(verbs) LOOP
        INSERT INTO queues (name, listed, depth_max, concurrency_max) VALUES (v->>0, true, (v->>1)::bigint, (v->>2)::bigint)
        ON CONFLICT (name) DO UPDATE SET listed = true, depth_max = excluded.depth_max, concurrency_max = excluded.concurrency_max;
    END LOOP;
    RETURN NULL;
END $$;

-- before, limit, items, sessions
CREATE FUNCTION prune__v(verbs jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v jsonb;
    old bigint[];
    outcomes text[];
BEGIN
    FOR v IN SELECT value FROM jsonb_array_elements(verbs) LOOP
        IF (v->>3)::boolean THEN
            old := ARRAY(SELECT pk FROM sessions WHERE expires < (v->>0)::double precision AND expires <= now
                         ORDER BY expires LIMIT (v->>1)::bigint FOR UPDATE SKIP LOCKED);
            PERFORM drop_sessions__v(old);
        ELSE
            old := prune_runs__v((v->>0)::double precision, (v->>1)::bigint, (v->>2)::boolean);
        END IF;
        outcomes := outcomes || cardinality(old)::text;
    END LOOP;
    RETURN '[' || array_to_string(outcomes, ',') || ']';
END $$;

-- Candidates and their parents are locked, then tested again: somebody may just have had one retried.
CREATE FUNCTION prune_runs__v(before double precision, most bigint, items boolean) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    old bigint[];
    above text[];
BEGIN
    IF items THEN
        old := ARRAY(SELECT pk FROM runs WHERE workflow = '' AND status = 'done' AND ended < before ORDER BY ended LIMIT most FOR UPDATE SKIP LOCKED);
    ELSE
        old := ARRAY(
            SELECT pk FROM runs WHERE ended < before AND undoing IS NULL AND kept_by__v(parent) IS NULL
              AND ((ended IS NOT NULL AND NOT (workflow = '' AND status = 'done')) OR (workflow = '' AND status = 'done'))
            ORDER BY ended LIMIT most FOR UPDATE SKIP LOCKED);
        above := ARRAY(SELECT DISTINCT parent FROM runs WHERE pk = ANY(old) AND parent IS NOT NULL);
        IF cardinality(above) > 0 THEN
            above := ARRAY(SELECT p FROM unnest(above) p WHERE EXISTS (SELECT 1 FROM runs WHERE id = p)
                           EXCEPT SELECT l.id FROM (SELECT id FROM runs WHERE id = ANY(above) ORDER BY pk FOR NO KEY UPDATE SKIP LOCKED) l);
            old := ARRAY(SELECT pk FROM runs WHERE pk = ANY(old) AND (parent IS NULL OR (parent <> ALL(above) AND kept_by__v(parent) IS NULL)));
        END IF;
    END IF;
    old := ARRAY(SELECT pk FROM runs WHERE pk = ANY(old) AND ended < before AND undoing IS NULL);
    DELETE FROM entries WHERE run = ANY(old);
    DELETE FROM messages WHERE run = ANY(old);
    DELETE FROM progress WHERE run = ANY(old);
    DELETE FROM runs WHERE pk = ANY(old);
    RETURN old;
END $$;

-- A parent for whose sake its children stay.
CREATE FUNCTION kept_by__v(parent text) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT r.pk FROM runs r WHERE r.id = kept_by__v.parent AND (r.ended IS NULL OR r.undoing IS NOT NULL)
$$;

-- A worker's heart beats; in the session that has its locks they are taken first. The backend's pid tells whether it is still the same session.
CREATE FUNCTION heart__v(who text[], every double precision, locks text[]) RETURNS text LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
BEGIN
    PERFORM pg_advisory_lock_shared(key__v('worker', w)) FROM unnest(locks) w;
    INSERT INTO presence AS p (worker, beat, every, server)
    SELECT w, seconds__v(), heart__v.every, pg_postmaster_start_time() FROM unnest(who) w ORDER BY w
    ON CONFLICT (worker) DO UPDATE SET beat = excluded.beat, every = excluded.every, server = excluded.server;
    RETURN json_build_array(pg_backend_pid(), seconds__v());
END $$;

CREATE FUNCTION quiet__v(who text, locked boolean) RETURNS void LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
BEGIN
    DELETE FROM presence WHERE worker = who;
    IF locked THEN
        PERFORM pg_advisory_unlock_shared(key__v('worker', who));
    END IF;
END $$;

-- Begin to write, or shut out what was lost sight of: from then on only calls of the epoch that this gives are accepted.
CREATE FUNCTION epoch__v(writer text) RETURNS bigint LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
DECLARE
    raised bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(key__v('writer', writer));
    INSERT INTO writers AS w (id, epoch) VALUES (writer, 1)
    ON CONFLICT (id) DO UPDATE SET epoch = w.epoch + 1, since = clock_timestamp() RETURNING w.epoch INTO raised;
    DELETE FROM writers WHERE id IN (
        SELECT id FROM writers WHERE since < clock_timestamp() - interval '30 days' LIMIT 100 FOR UPDATE SKIP LOCKED);
    RETURN raised;
END $$;
