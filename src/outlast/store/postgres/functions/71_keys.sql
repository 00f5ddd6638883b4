-- Runs with a key take turns, within the limits of their queue. The due runs of one queue, key and
-- workflow form a lane. Runs that have started before, suspects and new runs have separate lanes
-- (`ready`). Only the first run of a lane, its head, is in the index of ready runs, and only while
-- the limits of the key allow it. Executing and started runs are counted from the table of runs.
-- Callers of these functions have locked the row of the queue, so claims from a queue with keys are
-- serialized. A trigger adds keys that need a review to key_changes.

-- Return whether the limits of a key allow another run: whether it has a slot, and when the next
-- new run may start (NULL for now).
CREATE FUNCTION key_room__v(q queues, k text, now double precision, OUT slot boolean,
    OUT opens double precision) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    slot := q.key_concurrency_max IS NULL OR q.key_concurrency_max > (
        SELECT count(*) FROM runs r WHERE r.key IS NOT NULL AND r.status = 'running'
            AND r.queue = q.name AND r.key = k);
    IF slot AND q.key_starts_max IS NOT NULL THEN
        SELECT r.started + q.key_period INTO opens FROM runs r
            WHERE r.key IS NOT NULL AND r.started IS NOT NULL AND r.queue = q.name AND r.key = k
            ORDER BY r.started DESC OFFSET q.key_starts_max - 1 LIMIT 1;
        IF opens <= now THEN
            opens := NULL;
        END IF;
    END IF;
END $$;

CREATE FUNCTION may_start__v(q queues, r runs, now double precision) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    room record := key_room__v(q, r.key, now);
BEGIN
    RETURN room.slot AND (r.started IS NOT NULL OR room.opens IS NULL);
END $$;

-- Give turns to the first runs of a key, and take them from all others. Return the place of the
-- first run that got a turn, in the order of claims, or NULL. `after` is the turn of a run that was
-- just claimed: the next run of the key goes behind all runs that have their turns by now. A locked
-- run is skipped, and the key is reviewed again soon.
CREATE FUNCTION review_key__v(q queues, k text, after double precision, now double precision)
    RETURNS double precision[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    place double precision := CASE WHEN after IS NULL THEN now
        ELSE greatest(now, after) + TURN_STEP__v END;
    room record := key_room__v(q, k, now);
    lane_workflow text := '';
    lane smallint := -4;
    first record;
    head record;
    given double precision[];
    missed boolean := false;
    has_new boolean := false;
BEGIN
    IF NOT room.slot OR room.opens IS NOT NULL THEN
        -- The trigger puts it back into its lane.
        FOR head IN SELECT r.pk, r.ready = 1 AND r.started IS NULL AS new FROM runs r
            WHERE r.key IS NOT NULL AND r.ready + 0 > 0 AND r.queue = q.name AND r.key = k
                AND r.undoing IS NULL
        LOOP
            has_new := has_new OR head.new;
            IF head.new OR NOT room.slot THEN
                missed := NOT take_turn__v(head.pk) OR missed;
            END IF;
        END LOOP;
    END IF;
    -- Compare the first run of each lane with the one that has its turn.
    WHILE room.slot LOOP
        SELECT r.workflow, r.ready, -r.priority AS rank, coalesce(r.interrupted, 1e12) AS since,
            r.due, r.pk
        INTO first FROM runs r WHERE r.key IS NOT NULL AND r.ready < 0 AND r.queue = q.name
            AND r.key = k AND (r.workflow, r.ready) > (lane_workflow, lane)
        ORDER BY r.workflow, r.ready, -r.priority, coalesce(r.interrupted, 1e12), r.due, r.pk
        LIMIT 1;
        EXIT WHEN NOT FOUND;
        lane_workflow := first.workflow;
        lane := first.ready;
        IF first.ready = -3 AND room.opens IS NOT NULL THEN
            has_new := true;
            CONTINUE;
        END IF;
        SELECT r.pk, (first.rank, first.since, first.due, first.pk)
            < (-r.priority, coalesce(r.interrupted, 1e12), r.due, r.pk) AS behind
        INTO head FROM runs r WHERE r.key IS NOT NULL AND r.ready + 0 > 0 AND r.queue = q.name
            AND r.key = k AND r.undoing IS NULL AND r.workflow = first.workflow
            AND CASE WHEN r.ready = 2 THEN -2 WHEN r.started IS NULL THEN -3 ELSE -1 END
                = first.ready;
        CONTINUE WHEN FOUND AND NOT head.behind;
        IF FOUND THEN
            missed := NOT take_turn__v(head.pk) OR missed;
        END IF;
        UPDATE runs SET ready = CASE WHEN ready = -2 THEN 2 ELSE 1 END, turn = place
        WHERE pk = (SELECT pk FROM runs WHERE pk = first.pk FOR NO KEY UPDATE SKIP LOCKED);
        IF FOUND THEN
            given := least(given, ARRAY[first.rank, first.since, place, first.pk]);
        ELSE
            missed := true;
        END IF;
    END LOOP;
    IF has_new AND room.opens IS NOT NULL THEN
        INSERT INTO key_changes (queue, key, at) VALUES (q.name, k, room.opens);
    END IF;
    IF missed THEN
        INSERT INTO key_changes (queue, key, at) VALUES (q.name, k, now + 0.1);
    END IF;
    RETURN given;
END $$;

-- Take the turn from a run. Return false if another transaction has locked the run.
CREATE FUNCTION take_turn__v(head bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE runs SET turn = NULL, ready = ready
    WHERE pk = (SELECT pk FROM runs WHERE pk = head FOR NO KEY UPDATE SKIP LOCKED);
    RETURN FOUND;
END $$;

-- Review keys of these queues that have changed since the last claim, up to 1,000 changes at a
-- time.
CREATE FUNCTION review_changed__v(names text[], now double precision) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    q queues;
    keys text[];
BEGIN
    FOR q IN SELECT * FROM queues WHERE name = ANY(names) AND keyed ORDER BY name LOOP
        keys := ARRAY(SELECT DISTINCT c.key FROM (SELECT o.key FROM key_changes o
            WHERE o.queue = q.name AND o.at <= now ORDER BY o.at LIMIT 1000) c);
        IF cardinality(keys) > 0 THEN
            DELETE FROM key_changes c WHERE c.queue = q.name AND c.key = ANY(keys);
            PERFORM review_key__v(q, k, NULL, now) FROM unnest(keys) k;
        END IF;
    END LOOP;
END $$;
