-- Drains and their reports, and recorded durations of steps.

-- worker, reason, keep
CREATE FUNCTION drain__v(v jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    standing smallint;
    released text;
BEGIN
    SELECT draining INTO standing FROM workers WHERE id = v->>0 FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN refused__v('worker', 'not registered, or swept');
    END IF;
    IF standing = 0 THEN
        UPDATE workers SET draining = 1 WHERE id = v->>0;
        -- Remove an earlier drain of the same worker id.
        PERFORM forget_drains__v(ARRAY[v->>0]);
    END IF;
    released := release_all_but__v(
        v->>0, ARRAY(SELECT jsonb_array_elements_text(v->2)::bigint),
            'its worker drains before it began', now);
    PERFORM open_report__v(v->>0, v->>1, now);
    RETURN released;
END $$;

-- Release the runs of a worker, except those with these fences, without counting an interruption.
CREATE FUNCTION release_all_but__v(holder text, keep bigint[], why text, now double precision)
    RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
    after runs;
    ids text[] := '{}';
BEGIN
    FOREACH r IN ARRAY takeable__v(holder, keep) LOOP
        r := after_progress__v(r);
        after := r;
        after.status := 'queued';
        after.due := now;
        after.reason := why;
        PERFORM release_run__v(r, after, now);
        ids := ids || r.id;
    END LOOP;
    RETURN to_json(ids);
END $$;

-- worker, why
CREATE FUNCTION request_drain__v(v jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE workers SET asked = coalesce(asked, v->>1) WHERE id = v->>0;
    RETURN CASE WHEN FOUND THEN 'null' ELSE refused__v('worker', 'not registered, or swept') END;
END $$;

-- worker, report
CREATE FUNCTION store_drain_report__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO drains AS d (worker, host, pid, reason, began, ended, held, report)
        VALUES (v->>0, '', 0, '', now, now, 0, v->>1)
    ON CONFLICT (worker) DO UPDATE SET ended = excluded.ended, report = excluded.report
        WHERE NOT d.swept;
    PERFORM keep_newest_drains__v();
    RETURN NULL;
END $$;

-- Open a drain report for a registered worker, unless it has one.
CREATE FUNCTION open_report__v(who text, why text, now double precision) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO drains (worker, host, pid, reason, began, held)
    SELECT w.id, w.host, w.pid, why, now, (SELECT count(*) FROM runs r WHERE r.worker = who)
        FROM workers w WHERE w.id = who
    ON CONFLICT (worker) DO NOTHING;
    IF FOUND THEN
        PERFORM keep_newest_drains__v();
    END IF;
END $$;

CREATE FUNCTION keep_newest_drains__v() RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT forget_drains__v(ARRAY(SELECT worker FROM drains
        ORDER BY number DESC OFFSET DRAINS_MAX__v))
$$;

CREATE FUNCTION forget_drains__v(who text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF cardinality(who) > 0 THEN
        DELETE FROM recoveries WHERE drain = ANY(who);
        DELETE FROM drains WHERE worker = ANY(who);
    END IF;
END $$;

-- samples: workflow, step, seconds
CREATE FUNCTION record_durations__v(commands jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    step record;
BEGIN
    INSERT INTO durations (workflow, step, seconds)
    SELECT s->>0, s->>1, (s->>2)::double precision
    FROM jsonb_array_elements(commands) WITH ORDINALITY t(v, n),
        jsonb_array_elements(v->0) WITH ORDINALITY u(s, m) ORDER BY n, m;
    FOR step IN
        SELECT s->>0 AS workflow, s->>1 AS name, count(*) AS more
            FROM jsonb_array_elements(commands) v, jsonb_array_elements(v->0) s GROUP BY 1, 2
    LOOP
        DELETE FROM durations d USING (
            SELECT o.workflow, o.step, o.number FROM durations o
                WHERE o.workflow = step.workflow AND o.step = step.name
            ORDER BY o.number DESC OFFSET DURATIONS_MAX__v LIMIT step.more + 10
        ) old WHERE d.workflow = old.workflow AND d.step = old.step AND d.number = old.number;
    END LOOP;
    RETURN NULL;
END $$;
