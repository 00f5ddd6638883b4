-- Execution of a run: recording, progress, waiting and settling.

-- Lock a run and return it.
CREATE FUNCTION run__v(id text) RETURNS runs LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
BEGIN
    SELECT * INTO r FROM runs WHERE runs.id = run__v.id FOR NO KEY UPDATE;
    RETURN r;
END $$;

CREATE FUNCTION run__v(pk bigint) RETURNS runs LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
BEGIN
    SELECT * INTO r FROM runs WHERE runs.pk = run__v.pk FOR NO KEY UPDATE;
    RETURN r;
END $$;

-- Return the fields of a run for an outcome. For a run with long texts, return only its number and
-- fence; the client reads the rest later. An answer that does not fit into the socket of a stopped
-- client would hold all locks.
CREATE FUNCTION row__v(r runs) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN octet_length(r.args) + coalesce(octet_length(r.value),
        0) + coalesce(octet_length(r.error), 0) > 2000
    THEN json_build_array(r.pk, r.fence)
    ELSE json_build_array(COLUMNS__v) END::text
$$;

-- Return the fields of a run that this call claimed for the first time. Fields with a known value
-- are left out, because a call may claim hundreds of items.
CREATE FUNCTION brief__v(r runs) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN r.lives = 1 AND octet_length(r.args) <= 2000
        AND (r.parent, r.timeout, r.deadline, r.ended, r.interrupted, r.cancel, r.reason,
            r.failed_at, r.value, r.error, r.undoing, r.abandon_after, r.by, r.key) IS NULL
        AND r.deaths = 0 AND r.interruptions = 0 AND r.mark = 0 AND r.deaths_in_a_row = 0
            AND r.interruptions_in_a_row = 0 AND r.failures = 0
    THEN concat('[', r.pk, ',', r.fence, ',', r.priority, ',', r.created, ',', r.started, ',',
        r.due, ',', r.attempts_max, ',', r.interruptions_max, ',',
                array_to_json(ARRAY[r.id, r.workflow, r.args, r.queue, r.seed]), ']')
    ELSE row__v(r) END
$$;

-- Record entries. An entry must follow the last one: a gap would mean that the server lost an entry
-- on which the execution still relies. The holder of the fence is the journal's only writer, so the
-- journal can be read without a lock. Most batches have one new entry per run, and one statement
-- writes them. If a run has several, they are numbered from its last entry. If anything is not new,
-- the entries are recorded one by one.
CREATE FUNCTION record__v(pks bigint[], commands jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    wrote bigint;
    outcome text;
BEGIN
    BEGIN
        IF cardinality(pks) = jsonb_array_length(commands) THEN
            WITH mine AS MATERIALIZED (SELECT r.pk, r.fence FROM runs r WHERE r.pk = ANY(pks)
                ORDER BY r.pk FOR SHARE)
            INSERT INTO entries (run, seq, fence, kind, key, at, args, value, error, seconds,
                attempt, asked, cost)
            SELECT mine.pk, (v->>1)::bigint, mine.fence, v->>3, v->>4, (v->>5)::double precision,
                v->>6, v->>7, v->>8,
                   (v->>9)::double precision, (v->>10)::bigint, (v->>11)::boolean, v->>12
            FROM jsonb_array_elements(commands) v
                JOIN mine ON mine.pk = (v->>0)::bigint AND mine.fence = (v->>2)::bigint
                    AND mine.fence > 0
            WHERE (v->>1)::bigint = 1 OR EXISTS (SELECT 1 FROM entries e WHERE e.run = mine.pk
                AND e.seq = (v->>1)::bigint - 1);
        ELSE
            WITH mine AS MATERIALIZED (
                SELECT r.pk, r.fence, (SELECT coalesce(max(e.seq), 0) FROM entries e
                    WHERE e.run = r.pk) AS last
                FROM runs r WHERE r.pk = ANY(pks) ORDER BY r.pk FOR SHARE
            )
            INSERT INTO entries (run, seq, fence, kind, key, at, args, value, error, seconds,
                attempt, asked, cost)
            SELECT run, seq, fence, v->>3, v->>4, (v->>5)::double precision, v->>6, v->>7, v->>8,
                   (v->>9)::double precision, (v->>10)::bigint, (v->>11)::boolean, v->>12
            FROM (
                SELECT v, mine.pk AS run, (v->>1)::bigint AS seq, mine.fence, mine.last,
                       row_number() OVER (PARTITION BY mine.pk ORDER BY (v->>1)::bigint) AS turn
                FROM jsonb_array_elements(commands) v
                    JOIN mine ON mine.pk = (v->>0)::bigint AND mine.fence = (v->>2)::bigint
                        AND mine.fence > 0
            ) new WHERE seq = last + turn;
        END IF;
        GET DIAGNOSTICS wrote = ROW_COUNT;
    EXCEPTION WHEN unique_violation THEN
        wrote := -1;
    END;
    IF wrote = jsonb_array_length(commands) THEN
        RETURN NULL;
    END IF;
    SELECT '[' || string_agg(record_one__v(v), ',' ORDER BY n) || ']' INTO outcome
    FROM (SELECT * FROM jsonb_array_elements(commands) WITH ORDINALITY t(v, n) ORDER BY n) each;
    RETURN outcome;
END $$;

CREATE FUNCTION record_one__v(v jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
BEGIN
    PERFORM 1 FROM entries WHERE run = (v->>0)::bigint AND seq = (v->>1)::bigint
        AND fence = (v->>2)::bigint;
    IF FOUND THEN
        RETURN 'null';
    END IF;
    SELECT * INTO r FROM runs WHERE pk = (v->>0)::bigint AND fence = (v->>2)::bigint
        AND fence > 0 FOR SHARE;
    IF NOT FOUND OR (v->>1)::bigint <> (SELECT coalesce(max(seq), 0) + 1 FROM entries
        WHERE run = r.pk) THEN
        RETURN refused__v('fence', '');
    END IF;
    INSERT INTO entries (run, seq, fence, kind, key, at, args, value, error, seconds, attempt,
        asked, cost)
    VALUES (r.pk, (v->>1)::bigint, r.fence, v->>3, v->>4, (v->>5)::double precision, v->>6, v->>7,
        v->>8,
            (v->>9)::double precision, (v->>10)::bigint, (v->>11)::boolean, v->>12);
    RETURN 'null';
END $$;

-- Append an entry of the store itself, in a command that has just voided the fence. The entry has
-- the void fence. With the old fence, a late record of the same seq by the execution that lost the
-- run would look like a repeat of this entry.
CREATE FUNCTION append__v(run bigint, fence bigint, kind text, key text, value text, token text,
    now double precision)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    last bigint;
BEGIN
    SELECT coalesce(max(e.seq), 0) + 1 INTO last FROM entries e WHERE e.run = append__v.run;
    INSERT INTO entries (run, seq, fence, kind, key, at, value, token)
        VALUES (run, last, -abs(fence), kind, key, now, value, token);
    RETURN last;
END $$;

-- Append such an entry. Entries after it count as progress.
CREATE FUNCTION mark__v(r runs, kind text, key text, value text, token text, now double precision)
    RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seq bigint := append__v(r.pk, r.fence, kind, key, value, token, now);
BEGIN
    UPDATE runs SET mark = seq WHERE pk = r.pk;
END $$;

-- Return whether the current execution has recorded anything of its own.
CREATE FUNCTION progress__v(r runs) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (
        SELECT EXISTS (SELECT 1 FROM entries e
            WHERE e.run = r.pk AND e.seq > r.mark AND e.fence = r.fence
                       AND e.kind IN ('step', 'attempt', 'inner', 'child', 'session', 'done'))
            OR EXISTS (SELECT 1 FROM progress p WHERE p.run = r.pk AND p.fence = r.fence));
END $$;

CREATE FUNCTION save_progress__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
BEGIN
    r := run__v((v->>0)::bigint);
    IF r.fence = (v->>1)::bigint AND r.fence > 0 THEN
        INSERT INTO progress AS p (run, key, fence, attempt, value, at)
        VALUES (r.pk, v->>2, r.fence, (v->>3)::bigint, v->>4, now)
        ON CONFLICT (run, key) DO UPDATE SET fence = excluded.fence, attempt = excluded.attempt,
            value = excluded.value,
                                             at = excluded.at
        WHERE excluded.fence > p.fence OR excluded.attempt >= p.attempt;
        RETURN NULL;
    ELSE
        RETURN refused__v('fence', '');
    END IF;
END $$;

CREATE FUNCTION set_waiting__v(v jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE runs SET waits = waits__v(v->2) WHERE pk = (v->>0)::bigint AND fence = (v->>1)::bigint
        AND fence > 0;
    RETURN CASE WHEN FOUND THEN 'null' ELSE refused__v('fence', '') END;
END $$;

-- Join names with a line break before, between and after them. A search for a name between two line
-- breaks then finds only the whole name.
CREATE FUNCTION waits__v(names jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce((SELECT E'\n' || string_agg(name, E'\n' ORDER BY n) || E'\n'
                         FROM jsonb_array_elements_text(names) WITH ORDINALITY t(name, n)), ''));
END $$;

-- Settle runs. A run without a parent needs no other lock. `pk = ANY(pks)` repeats what `pk = s.pk`
-- requires, so that the plan uses the index whatever the statistics are.
CREATE FUNCTION settle__v(commands jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    pks bigint[] := ARRAY(SELECT (v->>0)::bigint FROM jsonb_array_elements(commands) v);
    above text[] := array_remove(ARRAY(SELECT DISTINCT parent FROM runs WHERE pk = ANY(pks)), NULL);
    settled bigint;
    ended bigint[];
    outcome text;
BEGIN
    IF cardinality(above) > 0 THEN
        PERFORM 1 FROM runs WHERE pk = ANY(pks || ARRAY(SELECT pk FROM runs WHERE id = ANY(above)))
            ORDER BY pk FOR NO KEY UPDATE;
    END IF;
    WITH done AS (
        UPDATE runs SET status = s.status, fence = -abs(runs.fence), worker = NULL, value = s.value,
            error = s.error, reason = s.reason,
                        failed_at = s.failed_at, interrupted = NULL, waits = '',
                            deaths_in_a_row = 0, interruptions_in_a_row = 0,
                        undoing = CASE WHEN s.status <> 'parked' THEN NULL ELSE undoing END,
                        -- The time at which its clock stopped.
                        due = CASE WHEN s.status <> 'parked' THEN due ELSE now END,
                        released = CASE WHEN s.status <> 'parked' THEN NULL ELSE now END,
                        released_as = CASE WHEN s.status <> 'parked' THEN NULL ELSE 'parked' END,
                        ended = CASE WHEN s.status <> 'parked' THEN now END
        FROM (SELECT (v->>0)::bigint AS pk, (v->>1)::bigint AS fence, v->>2 AS status,
            v->>3 AS value, v->>4 AS error, v->>5 AS reason,
                     (v->>6)::bigint AS failed_at, coalesce((v->>7)::boolean, false)
                         AND v->>2 = 'parked' AS unless_cancelled
              FROM jsonb_array_elements(commands) WITH ORDINALITY e(v, n) ORDER BY 1, n) s
        WHERE runs.pk = ANY(pks) AND runs.pk = s.pk AND runs.fence = s.fence AND runs.fence > 0
          AND NOT (s.unless_cancelled AND cancel IS NOT NULL AND undoing IS NULL)
        RETURNING runs.pk, runs.ended, runs.parent
    ) SELECT count(*), array_agg(done.pk) FILTER (WHERE done.ended IS NOT NULL),
        array_agg(DISTINCT done.parent) INTO settled, ended, above FROM done;
    DELETE FROM progress WHERE run = ANY(ended);
    PERFORM wake_parent__v(a, now) FROM unnest(above) a;
    IF settled = cardinality(pks) THEN
        RETURN NULL;
    END IF;
    SELECT '[' || string_agg(CASE WHEN r.pk IS NULL THEN refused__v('fence', '')
                                  -- A cancellation prevented parking.
                                  WHEN r.fence > 0 THEN refused__v('cancel', r.cancel)
                                  ELSE 'null' END, ',' ORDER BY n) || ']' INTO outcome
    FROM jsonb_array_elements(commands) WITH ORDINALITY t(v, n) LEFT JOIN runs r
        ON r.pk = ANY(pks) AND r.pk = (v->>0)::bigint AND (
            (r.fence = (v->>1)::bigint AND r.fence > 0)
            OR (r.fence = -(v->>1)::bigint AND r.fence < 0
                AND r.status IN ('done', 'failed', 'cancelled', 'parked')
                -- Otherwise it became a dead letter and was cancelled.
                AND r.deaths_in_a_row = 0 AND r.interruptions_in_a_row = 0));
    RETURN outcome;
END $$;

CREATE FUNCTION ack__v(commands jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    pks bigint[] := ARRAY(SELECT (v->>0)::bigint FROM jsonb_array_elements(commands) v);
    acked bigint;
    outcome text;
BEGIN
    UPDATE runs SET status = 'done', fence = -runs.fence, worker = NULL, ended = now
    FROM (SELECT (v->>0)::bigint AS pk, (v->>1)::bigint AS fence
        FROM jsonb_array_elements(commands) v ORDER BY 1) a
    WHERE runs.pk = ANY(pks) AND runs.pk = a.pk AND runs.fence = a.fence AND runs.fence > 0;
    GET DIAGNOSTICS acked = ROW_COUNT;
    IF acked = cardinality(pks) THEN
        RETURN NULL;
    END IF;
    SELECT '[' || string_agg(CASE WHEN r.pk IS NOT NULL THEN 'null'
        ELSE refused__v('fence', '') END, ',' ORDER BY n) || ']' INTO outcome
    FROM jsonb_array_elements(commands) WITH ORDINALITY t(v, n)
    LEFT JOIN runs r ON r.pk = ANY(pks) AND r.pk = (v->>0)::bigint AND r.fence = -(v->>1)::bigint
        AND r.fence < 0 AND r.status = 'done';
    RETURN outcome;
END $$;

-- Make the parent of an ended run due if it waits. Its row is locked before it is read: a parent
-- that is about to wait either sees the end or is seen waiting here.
CREATE FUNCTION wake_parent__v(parent text, now double precision) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
BEGIN
    IF parent IS NOT NULL THEN
        r := run__v(parent);
        IF r.status = 'waiting' THEN
            PERFORM make_due__v(r, now);
        END IF;
    END IF;
END $$;

-- Return `ready` for a run that can be claimed now: 2 for a suspect, else 1.
CREATE FUNCTION readiness__v(in_a_row bigint) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN in_a_row >= SUSPECT_DEATHS__v THEN 2 ELSE 1 END::smallint
$$;

CREATE FUNCTION make_due__v(r runs, now double precision) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE runs SET due = least(due, now), ready = readiness__v(deaths_in_a_row) WHERE pk = r.pk;
END $$;
