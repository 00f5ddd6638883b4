-- A batch is one call of `commit`, in a transaction of its own. Conventions of all functions here:
--   * They are VOLATILE, so each statement sees what was committed before it began (READ COMMITTED).
--   * A command comes as the JSON array of its fields, in their order. An outcome goes back as JSON:
--     null, a value, or {"!": [why, detail]}.
--   * The statement that reads a row for a decision locks it. The lock phase is for the order only.
--   * Only expressions are in SQL. Any other function would be planned again in every transaction.
--   * A join with runs also says `pk = ANY(...)`. Without it, old statistics may lead to a plan that
--     walks over all runs. So no condition says `parent IS NOT NULL` (runs_parent would read every
--     child), and the runs of a worker are ordered by `pk + 0`.
--   * Names end in the schema's version: workers of an older release keep calling their functions.

-- Of `writer` there is one call at a time, and none of an epoch that is over: whoever has raised it
-- (`recover`) knows that what it lost sight of has ended or never will be. `patience`: how long it
-- waits for each lock, and then has done nothing (55P03); NULL: as the session is set. `pks` are
-- the runs of fenced commands. With `needs`, what else must be locked; without it they are all
-- Records.
CREATE FUNCTION commit__v(writer text, epoch bigint, at double precision, patience text,
    pks bigint[], needs jsonb, batch jsonb)
RETURNS text LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
DECLARE
    now double precision;
    part jsonb;
    kind text;
    commands jsonb;
    command jsonb;
    outcome text;
    several text[];
    outcomes text := '';
    rings boolean := false;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'this role''s default_transaction_isolation is %: it must be read committed',
            current_setting('transaction_isolation')
            USING ERRCODE = 'OL004';
    END IF;
    -- a pooler's session is as its role's; on others it is set
    IF current_setting('extra_float_digits')::int < 1 THEN
        RAISE EXCEPTION
            'this role''s extra_float_digits is %: it must be 1, or a time is not read as it was written',
            current_setting('extra_float_digits')
            USING ERRCODE = 'OL005';
    END IF;
    -- An acknowledged commit is durable, whatever the role's default says.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF patience IS NOT NULL THEN
        PERFORM set_config('lock_timeout', patience, true);
    END IF;
    PERFORM pg_advisory_xact_lock_shared(key__v('writer', writer));
    PERFORM 1 FROM writers WHERE writers.id = writer AND writers.epoch = commit__v.epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this writer has been shut out' USING ERRCODE = 'OL001';
    END IF;
    IF needs IS NULL THEN
        outcome := record__v(pks, batch->0->1);
        RETURN format('[%s,false,[%s]]', coalesce(at, seconds__v()), coalesce(outcome, 'null'));
    END IF;
    PERFORM lock__v(pks, needs, at);
    -- after all locks: who waited for them has not lived in the past
    now := coalesce(at, seconds__v());
    FOR part IN SELECT value FROM jsonb_array_elements(batch) LOOP
        kind := part->>0;
        commands := part->1;
        IF kind = 'Record' THEN
            outcome := record__v(ARRAY(SELECT DISTINCT (v->>0)::bigint
                FROM jsonb_array_elements(commands) v), commands);
        ELSIF kind = 'Settle' THEN
            outcome := settle__v(commands, now);
        ELSIF kind = 'Ack' THEN
            outcome := ack__v(commands, now);
            rings := rings OR EXISTS (
                SELECT 1 FROM queues WHERE name = ANY(ARRAY(SELECT DISTINCT v->>2
                    FROM jsonb_array_elements(commands) v))
                    AND (concurrency_max IS NOT NULL OR key_concurrency_max IS NOT NULL));
        -- of a group all or none are begun at once
        ELSIF kind = 'Submit' AND commands->0->>10 IS NULL THEN
            outcome := enqueue__v(commands, full__v(commands), now);
        ELSIF kind = 'RecordDurations' THEN
            outcome := record_durations__v(commands);
        ELSE
            several := '{}';
            FOR command IN SELECT value FROM jsonb_array_elements(commands) LOOP
                several := several || coalesce(one__v(kind, command, now), 'null');
            END LOOP;
            outcome := '[' || array_to_string(several, ',') || ']';
        END IF;
        outcomes := outcomes || CASE WHEN outcomes = '' THEN ''
            ELSE ',' END || coalesce(outcome, 'null');
    END LOOP;
    RETURN format('[%s,%s,[%s]]', now, rings::text, outcomes);
END $$;

-- A command of a kind that is not carried out for all of a group at once: those that come in
-- numbers are, by a statement or two.
CREATE FUNCTION one__v(kind text, v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    CASE kind
        WHEN 'Claim' THEN RETURN claim__v(v, now);
        WHEN 'Submit' THEN RETURN submit__v(v, now);
        WHEN 'SubmitMany' THEN RETURN submit_many__v(v->0, now);
        WHEN 'SaveProgress' THEN RETURN save_progress__v(v, now);
        WHEN 'Publish' THEN RETURN publish__v(v);
        WHEN 'SetWaiting' THEN RETURN set_waiting__v(v);
        WHEN 'Release' THEN RETURN release__v(v, now);
        WHEN 'Send' THEN RETURN send__v(v, now);
        WHEN 'Cancel' THEN RETURN cancel__v(v->>0, v->>1, now);
        WHEN 'Retry' THEN RETURN retry__v(v, now);
        WHEN 'Resume' THEN RETURN resume__v(v, now);
        WHEN 'Decide' THEN RETURN decide__v(v, now);
        WHEN 'Undo' THEN RETURN undo__v(v, now);
        WHEN 'UndoChild' THEN RETURN undo_child__v(v, now);
        WHEN 'RegisterWorker' THEN RETURN register_worker__v(v, now);
        WHEN 'Renew' THEN RETURN renew__v(v, now);
        WHEN 'DeregisterWorker' THEN RETURN deregister_worker__v(v, now);
        WHEN 'Sweep' THEN RETURN sweep__v((v->>0)::double precision, (v->>1)::double precision,
            now);
        WHEN 'Drain' THEN RETURN drain__v(v, now);
        WHEN 'RequestDrain' THEN RETURN request_drain__v(v);
        WHEN 'StoreDrainReport' THEN RETURN store_drain_report__v(v, now);
        WHEN 'SetQueueLimits' THEN RETURN set_queue_limits__v(v);
        WHEN 'Prune' THEN RETURN prune__v(v, now);
        WHEN 'UpdateSession' THEN RETURN update_session__v(v, now);
        WHEN 'UpdateSessions' THEN RETURN update_sessions__v(v, now);
        WHEN 'ExtendSession' THEN RETURN extend_session__v(v, now);
        WHEN 'DeleteSession' THEN RETURN delete_session__v(v, now);
    END CASE;
END $$;

CREATE FUNCTION seconds__v() RETURNS double precision LANGUAGE sql VOLATILE AS $$
    SELECT extract(epoch FROM clock_timestamp())::double precision
$$;

-- Of an advisory lock: different for each schema.
CREATE FUNCTION key__v(what text, name text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('SCHEMA__v/' || what || '/' || name, 6074001)
$$;

-- What is added to the numbers that are drawn for fences. A server that was promoted may not have
-- seen the last ones that its predecessor gave out: it jumps over them.
CREATE FUNCTION fences_from__v() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known meta;
BEGIN
    SELECT * INTO known FROM meta;
    IF known.timeline IS NULL THEN
        -- the server does not tell it, and may not be asked
        RETURN known.fences_from;
    END IF;
    IF known.timeline <> timeline__v() THEN
        SELECT * INTO known FROM meta FOR UPDATE;
        IF known.timeline <> timeline__v() THEN
            UPDATE meta SET timeline = timeline__v(), fences_from = fences_from + 1000000000
                RETURNING * INTO known;
        END IF;
    END IF;
    RETURN known.fences_from;
END $$;

CREATE FUNCTION timeline__v() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
$$;

-- Lock everything that a batch needs, in the one order that all batches keep: workers by id, queues
-- by name, sessions, runs by number. `needs` has these lists:
--   workers    ids of workers whose rows are changed
--   readers    ids of workers whose rows must only stay
--   leavers    ids of workers from which everything is taken
--   sweep      the workers that seem dead are leavers, too
--   ids        ids of runs
--   enders     numbers, and ender_ids ids, of runs that may end: their parents are locked, too
--   depths     names of queues that are counted
--   limits     names of queues whose limits are changed
--   claims     names of queues to claim from (null: any)
--   claim_ids  ids of runs to claim: the queues of those with a key are locked, too
--   sessions   [space, id]; those in made are created if missing
CREATE FUNCTION lock__v(pks bigint[], needs jsonb, at double precision) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    changed text[] := '{}';
    leavers text[] := '{}';
    dying text[] := '{}';
    named text[] := '{}';
    limits text[] := '{}';
    depths text[] := '{}';
    claims text[] := '{}';
    every bigint[] := pks;
BEGIN
    IF needs ? 'workers' THEN
        changed := texts__v(needs->'workers');
    END IF;
    IF needs ? 'leavers' THEN
        leavers := texts__v(needs->'leavers');
    END IF;
    IF needs ? 'sweep' THEN
        dying := ARRAY(SELECT worker FROM dying__v(coalesce(at, seconds__v())));
        PERFORM 1 FROM workers WHERE id = ANY(dying) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF cardinality(changed || leavers) > 0 THEN
        PERFORM 1 FROM workers WHERE id = ANY(changed || leavers || texts__v(needs->'readers'))
            ORDER BY id FOR NO KEY UPDATE;
    ELSIF needs ? 'readers' THEN
        PERFORM 1 FROM workers WHERE id = ANY(texts__v(needs->'readers')) ORDER BY id FOR SHARE;
    END IF;
    IF needs ? 'depths' OR needs ? 'limits' THEN
        limits := texts__v(needs->'limits');
        depths := texts__v(needs->'depths');
        INSERT INTO queues (name) SELECT DISTINCT n FROM unnest(depths || limits) n
        WHERE NOT EXISTS (SELECT 1 FROM queues o WHERE o.name = n) ORDER BY 1
            ON CONFLICT DO NOTHING;
    END IF;
    IF needs->'claims' = 'null' THEN
        claims := ARRAY(SELECT name FROM queues WHERE concurrency_max IS NOT NULL OR keyed);
    ELSIF needs ? 'claims' THEN
        claims := texts__v(needs->'claims');
    END IF;
    IF needs ? 'claim_ids' THEN
        claims := claims || ARRAY(SELECT DISTINCT queue FROM runs
            WHERE id = ANY(texts__v(needs->'claim_ids')) AND key IS NOT NULL);
    END IF;
    IF cardinality(limits || depths || claims) > 0 THEN
        PERFORM 1 FROM queues WHERE name = ANY(limits || depths || claims) AND (
            name = ANY(limits) OR (name = ANY(depths)
                AND exact__v(depth_max, (needs->'depth_max'->>name)::bigint))
            OR (name = ANY(claims) AND (concurrency_max IS NOT NULL OR keyed)))
        ORDER BY name FOR NO KEY UPDATE;
    END IF;
    -- in their order: who makes them in the order of its commands would wait for one who waits for
    -- him
    IF needs ? 'made' THEN
        INSERT INTO sessions (space, id, version, updated, expires, tokens)
        SELECT DISTINCT s->>0, s->>1, 0, coalesce(at, seconds__v()), coalesce(at, seconds__v()),
            '[]'::jsonb
        FROM jsonb_array_elements(needs->'made') s ORDER BY 1, 2 ON CONFLICT DO NOTHING;
    END IF;
    IF needs ? 'sessions' THEN
        PERFORM 1 FROM sessions WHERE space = ANY(ARRAY(SELECT s->>0
            FROM jsonb_array_elements(needs->'sessions') s))
          AND id = ANY(ARRAY(SELECT s->>1 FROM jsonb_array_elements(needs->'sessions') s))
          AND (space, id) IN (SELECT s->>0, s->>1 FROM jsonb_array_elements(needs->'sessions') s)
        ORDER BY space, id FOR NO KEY UPDATE;
    END IF;
    IF needs ? 'ids' OR needs ? 'ender_ids' THEN
        named := texts__v(needs->'ids') || texts__v(needs->'ender_ids');
        every := every || ARRAY(SELECT pk FROM runs WHERE id = ANY(named));
    END IF;
    IF needs ? 'enders' OR needs ? 'ender_ids' THEN
        every := every || ARRAY(SELECT pk FROM runs WHERE id = ANY(ARRAY(
            SELECT parent FROM runs WHERE pk = ANY(ARRAY(SELECT e::bigint
                FROM jsonb_array_elements_text(needs->'enders') e))
            UNION ALL SELECT parent FROM runs WHERE id = ANY(texts__v(needs->'ender_ids')))));
    END IF;
    IF cardinality(every) > 0 THEN
        PERFORM 1 FROM runs WHERE pk = ANY(every) ORDER BY pk FOR NO KEY UPDATE;
    END IF;
END $$;

-- The runs of these that cannot be locked now, or whose parents cannot be.
CREATE FUNCTION locked__v(pks bigint[], ids text[]) RETURNS TABLE (pk bigint, id text)
    LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
DECLARE
    wanted bigint[] := pks || ARRAY(SELECT r.pk FROM runs r WHERE r.id = ANY(ids));
    parents bigint[] := ARRAY(SELECT p.pk FROM runs p
        WHERE p.id = ANY(ARRAY(SELECT r.parent FROM runs r WHERE r.pk = ANY(wanted))));
    free bigint[] := ARRAY(SELECT r.pk FROM runs r WHERE r.pk = ANY(wanted || parents)
        ORDER BY r.pk FOR NO KEY UPDATE SKIP LOCKED);
BEGIN
    RETURN QUERY
        SELECT r.pk, r.id FROM runs r
        WHERE r.pk = ANY(wanted) AND (r.pk <> ALL(free) OR EXISTS (SELECT 1 FROM runs p
            WHERE p.id = r.parent AND p.pk <> ALL(free)));
END $$;

-- What a worker holds, but for these fences, and can be taken from it now: its row and its parent's
-- are locked. Nobody waits for a row that another program keeps locked: who takes the others comes
-- back for it.
CREATE FUNCTION takeable__v(holder text, keep bigint[]) RETURNS runs[]
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    held bigint[] := ARRAY(SELECT r.pk FROM runs r
        WHERE r.worker = holder AND r.fence <> ALL(keep));
    stuck bigint[] := ARRAY(SELECT l.pk FROM locked__v(held, '{}') l);
BEGIN
    RETURN ARRAY(SELECT r FROM runs r WHERE r.pk = ANY(held) AND r.pk <> ALL(stuck)
        AND r.worker = holder ORDER BY r.pk + 0);
END $$;

CREATE FUNCTION texts__v(list jsonb) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN jsonb_typeof(list) = 'array'
            THEN ARRAY(SELECT jsonb_array_elements_text(list)) ELSE '{}' END);
END $$;

-- Why a command was not carried out.
CREATE FUNCTION refused__v(why text, detail text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '{"!":[' || to_json(why)::text || ',' || to_json(detail)::text || ']}'
$$;
