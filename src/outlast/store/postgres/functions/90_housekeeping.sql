-- Queue limits, pruning, heartbeats and epochs of writers.

-- queue, depth_max, concurrency_max, keep_depth, keep_concurrency, key_concurrency_max,
-- key_starts_max, key_period, keep_key_concurrency, keep_key_rate, paused
CREATE FUNCTION set_queue_limits__v(v jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO queues (name, listed) VALUES (v->>0, true)
        ON CONFLICT (name) DO UPDATE SET listed = true;
    UPDATE queues SET
        depth_max = CASE WHEN (v->>3)::boolean THEN depth_max ELSE (v->>1)::bigint END,
        concurrency_max = CASE WHEN (v->>4)::boolean THEN concurrency_max
            ELSE (v->>2)::bigint END,
        key_concurrency_max = CASE WHEN (v->>8)::boolean THEN key_concurrency_max
            ELSE (v->>5)::bigint END,
        key_starts_max = CASE WHEN (v->>9)::boolean THEN key_starts_max ELSE (v->>6)::bigint END,
        key_period = CASE WHEN (v->>9)::boolean THEN key_period
            ELSE (v->>7)::double precision END,
        paused = coalesce((v->>10)::boolean, paused)
    WHERE name = v->>0;
    IF NOT ((v->>8)::boolean AND (v->>9)::boolean) THEN
        INSERT INTO key_changes (queue, key, at)
            SELECT queue, key, 0 FROM runs WHERE key IS NOT NULL AND ready < 0 AND queue = v->>0
            UNION SELECT queue, key, 0 FROM runs
                WHERE key IS NOT NULL AND ready + 0 > 0 AND queue = v->>0;
    END IF;
    RETURN NULL;
END $$;

-- before, limit, items, sessions, ids, [ended, pk] of the last run that the previous call examined,
-- and whether to prune dead letters too. The outcome is [number pruned, where it stopped], where
-- NULL means that it reached the end.
CREATE FUNCTION prune__v(v jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    old bigint[];
BEGIN
    IF (v->>3)::boolean THEN
        old := ARRAY(SELECT pk FROM sessions WHERE expires < (v->>0)::double precision
            AND expires <= now
                     ORDER BY expires LIMIT (v->>1)::bigint FOR UPDATE SKIP LOCKED);
        PERFORM drop_sessions__v(old);
        RETURN json_build_array(cardinality(old), NULL)::text;
    ELSIF jsonb_array_length(v->4) > 0 THEN
        old := ARRAY(SELECT pk FROM runs WHERE id IN (SELECT jsonb_array_elements_text(v->4))
            AND ended < (v->>0)::double precision
                     ORDER BY ended, pk LIMIT (v->>1)::bigint);
        RETURN json_build_array(prune_all__v(old, (v->>0)::double precision, true, now), NULL)::text;
    ELSE
        RETURN prune_runs__v((v->>0)::double precision, (v->>1)::bigint, (v->>2)::boolean, v->5,
            coalesce((v->>6)::boolean, false), now);
    END IF;
END $$;

-- Prune page by page, oldest first, until there are enough. Runs that must stay are examined once
-- and not again by each call.
CREATE FUNCTION prune_runs__v(before double precision, most bigint, items boolean, place jsonb,
    dead boolean, now double precision)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    last double precision := coalesce((place->>0)::double precision, '-infinity');
    last_pk bigint := coalesce((place->>1)::bigint, -1);
    page bigint := least(greatest(most, 100), 1000);
    -- An acked item is not a dead letter and has no children.
    anyway boolean := dead OR items;
    looked bigint[];
    ends double precision[];
    old bigint[];
    upto bigint;
    pruned bigint := 0;
BEGIN
    WHILE pruned < most LOOP
        SELECT array_agg(o.pk ORDER BY o.ended, o.pk),
            array_agg(o.ended ORDER BY o.ended, o.pk) INTO looked, ends FROM (
            SELECT * FROM (
                (SELECT pk, ended FROM runs WHERE workflow = '' AND status = 'done'
                    AND (ended, pk) > (last, last_pk) AND ended < before
                 ORDER BY ended, pk LIMIT page)
                UNION ALL
                (SELECT pk, ended FROM runs WHERE ended IS NOT NULL
                    AND NOT (workflow = '' AND status = 'done') AND NOT items
                 AND (ended, pk) > (last, last_pk) AND ended < before ORDER BY ended, pk LIMIT page)
            ) either ORDER BY ended, pk LIMIT page
        ) o;
        IF looked IS NULL THEN
            RETURN json_build_array(pruned, NULL);
        END IF;
        SELECT array_agg(c.pk), max(c.n) INTO old, upto FROM (
            SELECT l.pk, l.n FROM unnest(looked) WITH ORDINALITY l(pk, n) JOIN runs r ON r.pk = l.pk
            WHERE r.pk = ANY(looked) AND r.undoing IS NULL AND (anyway OR r.status <> 'dead')
                AND NOT stays__v(r.id, r.parent, anyway, '{}')
            ORDER BY l.n LIMIT most - pruned) c;
        IF coalesce(cardinality(old), 0) < most - pruned THEN
            upto := cardinality(looked);
        END IF;
        last := ends[upto];
        last_pk := looked[upto];
        pruned := pruned + prune_all__v(old, before, anyway, now);
    END LOOP;
    RETURN json_build_array(pruned, json_build_array(last, last_pk));
END $$;

-- Return whether a run must stay because of others: an ancestor may still have to compensate it, or
-- is in `busy`, or there is a dead letter above or below it that must stay. The lateral joins with
-- OFFSET 0 make each lookup use an index, whatever the statistics were at planning time.
CREATE FUNCTION stays__v(run text, above text, dead boolean, busy text[]) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF above IS NOT NULL AND EXISTS (
        WITH RECURSIVE line(parent, needs_it) AS (
            SELECT above COLLATE "C", false
            UNION SELECT p.parent, p.ended IS NULL OR p.undoing IS NOT NULL
                OR (p.status = 'dead' AND NOT dead) OR p.id = ANY(busy)
                  FROM line CROSS JOIN LATERAL (SELECT id, parent, ended, undoing, status FROM runs
                      WHERE id = line.parent OFFSET 0) p
        ) SELECT 1 FROM line WHERE needs_it
    ) THEN
        RETURN true;
    ELSIF dead THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        WITH RECURSIVE line(id, status) AS (
            SELECT id, status FROM runs WHERE parent = run
            UNION SELECT c.id, c.status FROM line
                CROSS JOIN LATERAL (SELECT id, status FROM runs WHERE parent = line.id OFFSET 0) c
        ) SELECT 1 FROM line WHERE status = 'dead');
END $$;

-- Lock the candidates and all their ancestors, check them again, and delete those that may go. One
-- of them may have been retried in between.
CREATE FUNCTION prune_all__v(candidates bigint[], before double precision, dead boolean,
    now double precision) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    old bigint[] := ARRAY(SELECT pk FROM runs
        WHERE pk = ANY(candidates) AND ended < before AND undoing IS NULL
            -- Such a run still counts against the rate of its key.
            AND (key IS NULL OR (started > now - (SELECT key_period FROM queues WHERE name = queue))
                IS NOT TRUE)
            ORDER BY pk FOR UPDATE SKIP LOCKED);
    above text[] := ARRAY(
        WITH RECURSIVE line(id) AS (
            SELECT parent FROM runs WHERE pk = ANY(old)
            UNION SELECT p.parent FROM line
                CROSS JOIN LATERAL (SELECT parent FROM runs WHERE id = line.id OFFSET 0) p
        ) SELECT id FROM line WHERE id IS NOT NULL);
    busy text[];
BEGIN
    IF cardinality(above) > 0 THEN
        busy := ARRAY(SELECT id FROM runs WHERE id = ANY(above)
                      EXCEPT SELECT l.id FROM (SELECT id FROM runs WHERE id = ANY(above)
                          ORDER BY pk FOR NO KEY UPDATE SKIP LOCKED) l);
        old := ARRAY(SELECT pk FROM runs WHERE pk = ANY(old)
            AND (parent IS NULL OR NOT stays__v(id, parent, dead, busy)));
    END IF;
    DELETE FROM entries WHERE run = ANY(old);
    DELETE FROM messages WHERE run = ANY(old);
    DELETE FROM executions WHERE run = ANY(old);
    DELETE FROM progress WHERE run = ANY(old);
    DELETE FROM stream_chunks WHERE run = ANY(old);
    DELETE FROM stream_parts WHERE run = ANY(old);
    DELETE FROM streams WHERE run = ANY(old);
    DELETE FROM runs WHERE pk = ANY(old);
    RETURN cardinality(old);
END $$;

-- Record heartbeats of workers. In the session that holds their locks, take missing locks first.
-- The returned backend pid shows whether it is still the same session. In another session (`locks`
-- is NULL), only workers with a row are updated, so a worker that has just left does not reappear.
CREATE FUNCTION heartbeat__v(who text[], every double precision, locks text[]) RETURNS text
    LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
BEGIN
    -- Skip a row that another program has locked, because this connection must not wait for it.
    UPDATE presence p SET beat = seconds__v(), every = coalesce(heartbeat__v.every, p.every),
        server = pg_postmaster_start_time()
    WHERE p.worker IN (SELECT f.worker FROM presence f WHERE f.worker = ANY(who)
        ORDER BY f.worker FOR NO KEY UPDATE SKIP LOCKED);
    IF locks IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_lock_shared(key__v('worker', w)) FROM unnest(locks) w;
    INSERT INTO presence AS p (worker, beat, every, server)
    SELECT w, seconds__v(), heartbeat__v.every, pg_postmaster_start_time() FROM unnest(who) w
    WHERE NOT EXISTS (SELECT 1 FROM presence f WHERE f.worker = w) ORDER BY w
    ON CONFLICT DO NOTHING;
    RETURN json_build_array(pg_backend_pid(), seconds__v());
END $$;

CREATE FUNCTION end_heartbeat__v(who text, locked boolean) RETURNS void
    LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
BEGIN
    DELETE FROM presence WHERE worker = who;
    IF locked THEN
        PERFORM pg_advisory_unlock_shared(key__v('worker', who));
    END IF;
END $$;

-- Begin a new epoch of a writer and return it. From then on only calls with this epoch are
-- accepted, which shuts out earlier calls whose outcome is unknown.
CREATE FUNCTION epoch__v(writer text) RETURNS bigint LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
DECLARE
    raised bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(key__v('writer', writer));
    INSERT INTO writers AS w (id, epoch) VALUES (writer, nextval('epochs'))
    ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, since = clock_timestamp()
        RETURNING w.epoch INTO raised;
    DELETE FROM writers WHERE id IN (
        SELECT id FROM writers WHERE since < clock_timestamp() - interval '30 days'
            LIMIT 100 FOR UPDATE SKIP LOCKED);
    RETURN raised;
END $$;
