-- A batch is one call of `commit`, in a transaction of its own. Conventions of all functions here:
--   * They are VOLATILE, so each statement sees what was committed before it began (READ COMMITTED).
--   * A command is the JSON array of its fields, in order. An outcome is JSON: null, a value, or
--     {"!": [why, detail]} for a refusal.
--   * A statement that reads a row for a decision also locks it. The lock phase only sets the order.
--   * LANGUAGE sql is for single expressions. Other functions would be planned in every transaction.
--   * A join with runs also has `pk = ANY(...)`. Without it, stale statistics can lead to a plan
--     that reads all runs. For the same reason no condition is `parent IS NOT NULL`, which would
--     read every child through runs_parent, and the runs of a worker are ordered by `pk + 0`.
--   * Names end in the schema's version, so workers of an older release keep calling their own.

-- Commit a batch. A writer makes one call at a time. A call with an old epoch is rejected, so a
-- writer that has raised its epoch (`recover`) knows that its earlier calls have ended or will
-- never start. `patience` bounds the wait for each lock; a call that exceeds it writes nothing
-- (55P03). NULL keeps the session's setting. `pks` are the runs of fenced commands. `needs` names
-- what else must be locked; without it, all commands are Records.
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
    notifies boolean := false;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'this role''s default_transaction_isolation is %: it must be read committed',
            current_setting('transaction_isolation')
            USING ERRCODE = 'OL004';
    END IF;
    -- A pooler's session has the settings of its role. Elsewhere the client sets it.
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
    -- Read the clock after all locks, so that time spent waiting for them counts.
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
            notifies := notifies OR EXISTS (
                SELECT 1 FROM queues WHERE name = ANY(ARRAY(SELECT DISTINCT v->>2
                    FROM jsonb_array_elements(commands) v))
                    AND (concurrency_max IS NOT NULL OR key_concurrency_max IS NOT NULL));
        -- In a group, either all runs start at once or none does.
        ELSIF kind = 'Submit' AND commands->0->>10 IS NULL THEN
            outcome := enqueue__v(commands, full__v(commands), now);
        ELSIF kind = 'RecordDurations' THEN
            outcome := record_durations__v(commands);
        ELSE
            several := '{}';
            FOR command IN SELECT value FROM jsonb_array_elements(commands) LOOP
                several := several || coalesce(execute__v(kind, command, now), 'null');
            END LOOP;
            outcome := '[' || array_to_string(several, ',') || ']';
        END IF;
        outcomes := outcomes || CASE WHEN outcomes = '' THEN ''
            ELSE ',' END || coalesce(outcome, 'null');
    END LOOP;
    RETURN format('[%s,%s,[%s]]', now, notifies::text, outcomes);
END $$;

-- Execute one command. Kinds that are frequent execute as a group, in one or two statements.
CREATE FUNCTION execute__v(kind text, v jsonb, now double precision) RETURNS text
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

-- Return the key of an advisory lock, which differs between schemas.
CREATE FUNCTION key__v(what text, name text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('SCHEMA__v/' || what || '/' || name, 6074001)
$$;

-- Return what is added to numbers from the fence sequence. A promoted server may not have received
-- the last numbers that its predecessor used, so it skips ahead of them.
CREATE FUNCTION fences_from__v() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known meta;
BEGIN
    SELECT * INTO known FROM meta;
    IF known.timeline IS NULL THEN
        -- This server does not show its timeline.
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

-- Lock everything that a batch needs, in the order that all batches follow: workers by id, queues
-- by name, sessions by space and id, runs by number. `needs` has these lists:
--   workers    ids of workers whose rows change
--   readers    ids of workers whose rows must not disappear
--   leavers    ids of workers that lose all their runs
--   sweep      present if workers that seem dead are leavers too
--   ids        ids of runs
--   enders     numbers, and ender_ids ids, of runs that may end, whose parents are locked too
--   depths     names of queues whose depth is counted
--   limits     names of queues whose limits change
--   claims     names of queues to claim from, or null for any
--   claim_ids  ids of runs to claim; for runs with a key, their queues are locked too
--   sessions   [space, id]; those in `made` are created if missing
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
    -- Inserted in key order. In the order of the commands, two batches could deadlock.
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

-- Return those of these runs that another transaction has locked, or whose parents it has locked.
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

-- Return the runs of a worker, except those with these fences, and lock them and their parents.
-- Rows that another program keeps locked are left out. The caller takes them later.
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

-- Return the outcome of a refused command.
CREATE FUNCTION refused__v(why text, detail text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '{"!":[' || to_json(why)::text || ',' || to_json(detail)::text || ']}'
$$;
