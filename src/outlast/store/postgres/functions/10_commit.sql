-- A batch is one call of `commit`, in one transaction, by itself. Conventions of all functions here:
--   * VOLATILE, so that each statement sees what was committed before it began (READ COMMITTED);
--   * a verb comes as the JSON array of its fields, in their order, and an outcome goes back as JSON: null, a value, or {"!": [why, detail]};
--   * a row that a verb decides upon is locked by the statement that reads it. The lock phase is for the order only;
--   * names end in the schema's version: workers of an older release go on calling theirs.

-- Of `writer` there is one call at a time, and none of an epoch that is over: whoever has raised it (`recover`) knows that what it
-- lost sight of has ended or never will be. `pks` and `fences` are the runs of fenced verbs and what they should have. With `needs`, what
-- else must be locked; without it they are all Records.
CREATE FUNCTION commit__v(writer text, epoch bigint, at double precision, pks bigint[], fences bigint[], needs jsonb, batch jsonb)
RETURNS text LANGUAGE plpgsql VOLATILE SETTINGS__v AS $$
DECLARE
    now double precision;
    part jsonb;
    verbs jsonb;
    outcome text;
    outcomes text := '';
    rings boolean := false;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'this role''s default_transaction_isolation is %: it must be read committed', current_setting('transaction_isolation')
            USING ERRCODE = 'OL004';
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN  -- what was acknowledged is durable, whatever the role's default
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_advisory_xact_lock_shared(key__v('writer', writer));
    PERFORM 1 FROM writers WHERE writers.id = writer AND writers.epoch = commit__v.epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this writer has been shut out' USING ERRCODE = 'OL001';
    END IF;
    IF needs IS NULL THEN
        outcome := record__v(pks, fences, batch->0->1, true);
        RETURN format('[%s,false,[%s]]', coalesce(at, seconds__v()), coalesce(outcome, 'null'));
    END IF;
    PERFORM lock__v(pks, needs, at);
    now := coalesce(at, seconds__v());  -- after all locks: who waited for them has not lived in the past
    FOR part IN SELECT value FROM jsonb_array_elements(batch) LOOP
        verbs := part->1;
        CASE part->>0
            WHEN 'Record' THEN
                SELECT array_agg(DISTINCT (v->>0)::bigint), array_agg(DISTINCT (v->>2)::bigint) INTO pks, fences FROM jsonb_array_elements(verbs) v;
                outcome := record__v(pks, fences, verbs, false);
            WHEN 'Settle' THEN outcome := settle__v(verbs, now);
            WHEN 'Ack' THEN
                outcome := ack__v(verbs, now);
                rings := rings OR EXISTS (
                    SELECT 1 FROM queues JOIN jsonb_array_elements(verbs) v ON name = v->>2 WHERE concurrency_max IS NOT NULL);
            WHEN 'Claim' THEN outcome := claim__v(verbs, now);
            WHEN 'Submit' THEN outcome := submit__v(verbs, now);
            WHEN 'SubmitMany' THEN outcome := submit_many__v(verbs, now);
            WHEN 'Save' THEN outcome := save__v(verbs, now);
            WHEN 'Wait' THEN outcome := wait__v(verbs);
            WHEN 'Release' THEN outcome := release__v(verbs, now);
            WHEN 'Send' THEN outcome := send__v(verbs, now);
            WHEN 'Cancel' THEN outcome := cancel__v(verbs, now);
            WHEN 'Retry' THEN outcome := retry__v(verbs, now);
            WHEN 'Resume' THEN outcome := resume__v(verbs, now);
            WHEN 'Decide' THEN outcome := decide__v(verbs, now);
            WHEN 'Undo' THEN outcome := undo__v(verbs, now);
            WHEN 'UndoChild' THEN outcome := undo_child__v(verbs, now);
            WHEN 'Enlist' THEN outcome := enlist__v(verbs, now);
            WHEN 'Renew' THEN outcome := renew__v(verbs, now);
            WHEN 'Leave' THEN outcome := leave__v(verbs, now);
            WHEN 'Sweep' THEN outcome := sweep__v(verbs, now);
            WHEN 'Drain' THEN outcome := drain__v(verbs, now);
            WHEN 'AskDrain' THEN outcome := ask_drain__v(verbs);
            WHEN 'Report' THEN outcome := report__v(verbs, now);
            WHEN 'Measured' THEN outcome := measured__v(verbs);
            WHEN 'Limit' THEN outcome := limit__v(verbs);
            WHEN 'Prune' THEN outcome := prune__v(verbs, now);
            WHEN 'Keep' THEN outcome := keep__v(verbs, now);
            WHEN 'Touch' THEN outcome := touch__v(verbs, now);
            WHEN 'Forget' THEN outcome := forget__v(verbs);
        END CASE;
        outcomes := outcomes || CASE WHEN outcomes = '' THEN '' ELSE ',' END || coalesce(outcome, 'null');
    END LOOP;
    RETURN format('[%s,%s,[%s]]', now, rings::text, outcomes);
END $$;

CREATE FUNCTION seconds__v() RETURNS double precision LANGUAGE sql VOLATILE AS $$
    SELECT extract(epoch FROM clock_timestamp())::double precision
$$;

-- Of an advisory lock: different for each schema.
CREATE FUNCTION key__v(what text, name text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('SCHEMA__v/' || what || '/' || name, 6074001)
$$;

-- Before fences are drawn. A server that was promoted may not have seen the last ones that its predecessor gave out: it jumps over them.
CREATE FUNCTION ready_fences__v() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known text;
BEGIN
    SELECT timeline INTO known FROM meta;
    IF known <> timeline__v() THEN
        SELECT timeline INTO known FROM meta FOR UPDATE;
        IF known <> timeline__v() THEN
            PERFORM setval('fences', nextval('fences') + 1000000000);
            UPDATE meta SET timeline = timeline__v();
        END IF;
    END IF;
END $$;

CREATE FUNCTION timeline__v() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
$$;

-- Everything a batch needs, in the one order that all keep: workers by id, queues by name, sessions, runs by number. `needs`:
--   workers        ids: of these, the rows are changed          readers  the rows only must stay
--   leavers        ids of workers of which everything is taken  sweep    whoever seems dead is one of them
--   ids            of runs                                      enders   numbers, and ender_ids ids, of those that may end: their parents too
--   depths         names of queues that are counted             limits   names that are changed
--   claims         names of queues to claim from (null: any)    sessions [space, id]
CREATE FUNCTION lock__v(pks bigint[], needs jsonb, at double precision) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    changed text[] := texts__v(needs->'workers');
    leavers text[] := texts__v(needs->'leavers');
    named text[] := texts__v(needs->'ids') || texts__v(needs->'ender_ids');
    every bigint[];
BEGIN
    IF needs ? 'sweep' THEN
        leavers := leavers || ARRAY(SELECT worker FROM dying__v(coalesce(at, seconds__v())));
    END IF;
    IF cardinality(changed || leavers) > 0 THEN
        PERFORM 1 FROM workers WHERE id = ANY(changed || leavers || texts__v(needs->'readers')) ORDER BY id FOR NO KEY UPDATE;
    ELSIF needs ? 'readers' THEN
        PERFORM 1 FROM workers WHERE id = ANY(texts__v(needs->'readers')) ORDER BY id FOR SHARE;
    END IF;
    IF needs ? 'depths' OR needs ? 'limits' THEN
        INSERT INTO queues (name) SELECT DISTINCT unnest(texts__v(needs->'depths') || texts__v(needs->'limits')) ORDER BY 1
        ON CONFLICT DO NOTHING;
    END IF;
    IF needs ? 'depths' OR needs ? 'limits' OR needs ? 'claims' THEN
        PERFORM 1 FROM queues
        WHERE name = ANY(texts__v(needs->'limits'))
           OR (name = ANY(texts__v(needs->'depths')) AND exact__v(depth_max, (needs->'depth_max'->>name)::bigint))
           OR (concurrency_max IS NOT NULL AND needs ? 'claims'
               AND (needs->'claims' = 'null' OR name = ANY(texts__v(needs->'claims'))))
        ORDER BY name FOR NO KEY UPDATE;
    END IF;
    IF needs ? 'sessions' THEN
        PERFORM 1 FROM sessions WHERE (space, id) IN (SELECT s->>0, s->>1 FROM jsonb_array_elements(needs->'sessions') s)
        ORDER BY space, id FOR NO KEY UPDATE;
    END IF;
    every := pks;
    IF cardinality(named) > 0 THEN
        every := every || ARRAY(SELECT pk FROM runs WHERE id = ANY(named));
    END IF;
    IF cardinality(leavers) > 0 THEN
        every := every || ARRAY(SELECT pk FROM runs WHERE worker = ANY(leavers));
    END IF;
    IF needs ? 'enders' OR needs ? 'ender_ids' OR cardinality(leavers) > 0 THEN
        every := every || ARRAY(SELECT pk FROM runs WHERE id = ANY(ARRAY(
            SELECT parent FROM runs WHERE pk = ANY(ARRAY(SELECT e::bigint FROM jsonb_array_elements_text(needs->'enders') e)) AND parent IS NOT NULL
            UNION ALL SELECT parent FROM runs WHERE id = ANY(texts__v(needs->'ender_ids')) AND parent IS NOT NULL
            UNION ALL SELECT parent FROM runs WHERE worker = ANY(leavers) AND parent IS NOT NULL)));
    END IF;
    IF cardinality(every) > 0 THEN
        PERFORM 1 FROM runs WHERE pk = ANY(every) ORDER BY pk FOR NO KEY UPDATE;
    END IF;
END $$;

CREATE FUNCTION texts__v(list jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(list) = 'array' THEN ARRAY(SELECT jsonb_array_elements_text(list)) ELSE '{}' END
$$;

-- Why a verb was not carried out.
CREATE FUNCTION refused__v(why text, detail text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '{"!":[' || to_json(why)::text || ',' || to_json(detail)::text || ']}'
$$;
