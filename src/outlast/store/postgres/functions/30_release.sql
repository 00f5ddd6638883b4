-- Releasing and interrupting runs.

-- run, fence, reason, delay, waiting, interrupted, failed, due, waits, seen, children
CREATE FUNCTION release__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs := run__v((v->>0)::bigint);
    after runs;
    outcome text;
BEGIN
    IF r.pk IS NULL OR r.fence <> (v->>1)::bigint OR r.fence <= 0 THEN
        IF r.fence = -(v->>1)::bigint AND r.fence < 0
           AND (r.status IN ('queued', 'waiting', 'dead')
                OR (r.status = 'cancelled'
                    AND (r.workflow = '' OR r.deaths_in_a_row > 0
                        OR r.interruptions_in_a_row > 0))) THEN
            RETURN to_json(r.status);
        END IF;
        RETURN refused__v('fence', '');
    END IF;
    r := after_progress__v(r);
    after := r;
    after.reason := v->>2;
    after.status := 'queued';
    after.due := now + (v->>3)::double precision;
    IF (v->>4)::boolean THEN
        after.status := 'waiting';
        after.due := (v->>7)::double precision;
        after.interrupted := NULL;
        after.waits := waits__v(v->8);
        IF r.cancel IS NOT NULL OR has_news__v(r.pk, v->8, (v->>9)::bigint, v->10) THEN
            after.due := least(after.due, now);
        END IF;
        RETURN to_json(release_run__v(r, after, now));
    ELSIF (v->>6)::boolean THEN
        after.failures := r.failures + 1;
        IF after.failures >= r.attempts_max THEN
            after.status := 'dead';
        END IF;
        outcome := to_json(release_run__v(r, after, now));
        PERFORM append__v(r.pk, r.fence, 'failure', '', json_build_object('why', v->>2)::text, NULL,
            now);
        RETURN outcome;
    ELSIF (v->>5)::boolean THEN
        RETURN to_json(interrupt__v(r, after,
            EXISTS (SELECT 1 FROM workers WHERE id = r.worker AND draining = 1), NULL, NULL, now));
    END IF;
    RETURN to_json(release_run__v(r, after, now));
END $$;

-- Reset the counts of deaths and interruptions in a row if the run has made progress.
CREATE FUNCTION after_progress__v(r runs) RETURNS runs LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF (r.deaths_in_a_row > 0 OR r.interruptions_in_a_row > 0) AND progress__v(r) THEN
        r.deaths_in_a_row := 0;
        r.interruptions_in_a_row := 0;
    END IF;
    RETURN r;
END $$;

-- Return whether the execution has missed something: a message with one of these names after number
-- `seen`, or a child that has ended or does not exist.
CREATE FUNCTION has_news__v(run bigint, waits jsonb, seen bigint, children jsonb) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids text[] := texts__v(children);
BEGIN
    IF jsonb_array_length(waits) > 0 AND EXISTS (
        SELECT 1 FROM messages m WHERE m.run = has_news__v.run AND m.number > seen
            AND m.name = ANY(texts__v(waits))) THEN
        RETURN true;
    END IF;
    RETURN cardinality(ids) > 0
        AND (SELECT count(*) FROM runs WHERE id = ANY(ids)
            AND ended IS NULL) < (SELECT count(DISTINCT c) FROM unnest(ids) c);
END $$;

-- Interrupt a run: queue it ahead of new work, or make it a dead letter after too many
-- interruptions without progress. If its worker drains, the next claim counts as a recovery of that
-- drain. `seen` is the worker's last sign of life and `by` how it was noticed, if the worker did
-- not release the run itself.
CREATE FUNCTION interrupt__v(r runs, after runs, drains boolean, seen double precision, by text,
    now double precision)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    status text;
BEGIN
    after.interrupted := coalesce(r.interrupted, now);
    after.interruptions := r.interruptions + 1;
    after.interruptions_in_a_row := r.interruptions_in_a_row + 1;
    IF after.interruptions_in_a_row >= r.interruptions_max THEN
        after.reason := format('interrupted %s without recording anything; the last time: %s',
            times__v(after.interruptions_in_a_row), after.reason);
        after.status := 'dead';
    END IF;
    status := release_run__v(r, after, now);
    PERFORM mark__v(r, 'interruption', '', CASE WHEN seen IS NULL
        THEN json_build_object('why', after.reason)
                    ELSE json_build_object('why', after.reason, 'seen', seen, 'by', by) END::text,
                        NULL, now);
    IF drains AND status = 'queued' THEN
        UPDATE runs SET left_by = r.worker, left_at = coalesce(seen, now) WHERE pk = r.pk;
    END IF;
    RETURN status;
END $$;

CREATE FUNCTION times__v(count bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN count = 1 THEN 'once' ELSE count || ' times in a row' END
$$;

-- Write the new state of a held run and void its fence.
CREATE FUNCTION release_run__v(r runs, after runs, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF r.workflow = '' AND r.cancel IS NOT NULL THEN
        after.status := 'cancelled';
        after.reason := r.cancel;
    END IF;
    UPDATE runs SET status = after.status, fence = -abs(fence), worker = NULL, due = after.due,
        reason = after.reason,
                    ready = CASE WHEN after.status NOT IN ('queued', 'waiting') OR after.due > now
                        THEN 0
                                 ELSE readiness__v(after.deaths_in_a_row) END,
                    waits = after.waits, released = now, released_as = after.status,
                        interrupted = after.interrupted, deaths = after.deaths,
                        interruptions = after.interruptions,
                    failures = after.failures, deaths_in_a_row = after.deaths_in_a_row,
                    interruptions_in_a_row = after.interruptions_in_a_row,
                    ended = CASE WHEN after.status IN ('dead', 'cancelled') THEN now END
    WHERE pk = r.pk;
    IF after.status IN ('dead', 'cancelled') THEN
        PERFORM wake_parent__v(r.parent, now);
    END IF;
    RETURN after.status;
END $$;
