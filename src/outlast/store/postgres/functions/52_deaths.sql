-- Deaths in the fleet, and what they mean for a suspected run.

-- Record the death of a worker and the runs charged for it. Overlapping sweeps skip each other's
-- rows instead of waiting.
CREATE FUNCTION record_death__v(holder text, charged bigint[], now double precision) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO worker_deaths (at, worker, run)
    SELECT now, holder, c FROM unnest(CASE WHEN cardinality(charged) = 0 THEN ARRAY[0::bigint]
        ELSE charged END) c
    ON CONFLICT DO NOTHING;
    DELETE FROM worker_deaths WHERE (at, worker, run) IN (
        SELECT at, worker, run FROM worker_deaths
            ORDER BY at DESC OFFSET FLEET_DEATHS_MAX__v FOR UPDATE SKIP LOCKED);
END $$;

-- Return whether the last of `in_a_row` deaths in isolation makes the run a dead letter, given the
-- other deaths meanwhile: see the command Sweep.
CREATE FUNCTION is_final__v(r runs, in_a_row bigint, now double precision) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    since double precision;
    others bigint;
    size bigint;
BEGIN
    IF in_a_row < r.attempts_max THEN
        RETURN false;
    END IF;
    since := greatest(now - FLEET_SECONDS__v, least(now - FLEET_SECONDS_MIN__v, (
        SELECT min(own.at) FROM (SELECT d.at FROM worker_deaths d WHERE d.run = r.pk
            ORDER BY d.at DESC LIMIT in_a_row - 1) own)));
    SELECT count(*) FILTER (WHERE g.charged > 1
        OR g.run = 0) + count(DISTINCT g.run) FILTER (WHERE g.charged = 1 AND g.run <> 0)
    INTO others FROM (
        SELECT count(*) AS charged, min(d.run) AS run FROM worker_deaths d
            WHERE d.at > since AND d.at <= now
        GROUP BY d.at, d.worker HAVING bool_and(d.run <> r.pk)) g;
    SELECT count(*) INTO size FROM (SELECT w.id FROM workers w UNION SELECT d.worker
        FROM worker_deaths d WHERE d.at = now) fleet;
    RETURN in_a_row >= r.attempts_max + least(r.attempts_max * others / greatest(1, size),
        r.attempts_max * (ATTEMPTS_FACTOR_MAX__v - 1));
END $$;
