-- Runs with a key take turns, within the limits of their queue. The runs of a queue, key and workflow
-- that are due form a lane: those that have started before, the suspects and the new ones are lanes
-- of their own (`ready`). Only the first run of a lane, its head, is in the index of ready runs, and
-- only while the limits of the key allow it. What executes and what has started is counted from the
-- runs. Whoever calls these functions has locked the row of the queue, so claims of a queue with
-- keys go one after another. A trigger adds to key_changes the keys that something happened to.

-- Whether the limits of a key allow another run to execute: whether it has a slot, and when the next
-- new run may start (NULL: now).
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

-- Give turns to the first runs of a key, and take them from all others. The outcome is the place of
-- the first run that got one, in the order of claims (NULL: none did).
-- `after` is the turn of a run that was just claimed. The next one goes behind all others that have
-- their turns by now. A run that somebody else has locked is left, and the key soon reviewed again.
CREATE FUNCTION review_key__v(q queues, k text, after double precision, now double precision)
    RETURNS double precision[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    place double precision := CASE WHEN after IS NULL THEN now
        ELSE greatest(now, after) + TURN_STEP__v END;
    room record;
    lane record;
    given double precision[];
    missed boolean := false;
    is_open boolean;
BEGIN
    room := key_room__v(q, k, now);
    FOR lane IN
        WITH RECURSIVE firsts AS (
            (SELECT r.workflow, r.ready, -r.priority AS rank, coalesce(r.interrupted, 1e12) AS since,
                r.due, r.pk
             FROM runs r WHERE r.key IS NOT NULL AND r.ready < 0 AND r.queue = q.name AND r.key = k
             ORDER BY r.workflow, r.ready, -r.priority, coalesce(r.interrupted, 1e12), r.due, r.pk
             LIMIT 1)
            UNION ALL
            SELECT n.* FROM firsts f CROSS JOIN LATERAL (
                SELECT r.workflow, r.ready, -r.priority AS rank,
                    coalesce(r.interrupted, 1e12) AS since, r.due, r.pk
                FROM runs r WHERE r.key IS NOT NULL AND r.ready < 0 AND r.queue = q.name
                    AND r.key = k AND (r.workflow, r.ready) > (f.workflow, f.ready)
                ORDER BY r.workflow, r.ready, -r.priority, coalesce(r.interrupted, 1e12), r.due,
                    r.pk
                LIMIT 1) n
        ), heads AS (
            SELECT r.workflow, CASE WHEN r.ready = 2 THEN -2 WHEN r.started IS NULL THEN -3
                    ELSE -1 END::smallint AS ready,
                -r.priority AS rank, coalesce(r.interrupted, 1e12) AS since, r.due, r.pk
            FROM runs r WHERE r.key IS NOT NULL AND r.ready + 0 > 0 AND r.queue = q.name
                AND r.key = k AND r.undoing IS NULL
        )
        SELECT coalesce(f.ready, h.ready) = -3 AS new, f.pk AS first, h.pk AS head,
            f.rank, f.since,
            coalesce((f.rank, f.since, f.due, f.pk) < (h.rank, h.since, h.due, h.pk), false) AS ahead
        FROM firsts f FULL JOIN heads h ON h.workflow = f.workflow AND h.ready = f.ready
    LOOP
        is_open := room.slot AND NOT (lane.new AND room.opens IS NOT NULL);
        IF lane.head IS NOT NULL AND (NOT is_open OR lane.ahead) THEN
            -- the trigger puts it back into its lane
            UPDATE runs SET turn = NULL, ready = ready WHERE pk = (SELECT pk FROM runs
                WHERE pk = lane.head FOR NO KEY UPDATE SKIP LOCKED);
            missed := missed OR NOT FOUND;
        END IF;
        IF is_open AND lane.first IS NOT NULL AND (lane.head IS NULL OR lane.ahead) THEN
            UPDATE runs SET ready = CASE WHEN ready = -2 THEN 2 ELSE 1 END, turn = place
            WHERE pk = (SELECT pk FROM runs WHERE pk = lane.first FOR NO KEY UPDATE SKIP LOCKED);
            IF FOUND THEN
                given := least(given, ARRAY[lane.rank, lane.since, place, lane.first]);
            ELSE
                missed := true;
            END IF;
        END IF;
        IF lane.new AND room.opens IS NOT NULL THEN
            INSERT INTO key_changes (queue, key, at) VALUES (q.name, k, room.opens);
        END IF;
    END LOOP;
    IF missed THEN
        INSERT INTO key_changes (queue, key, at) VALUES (q.name, k, now + 0.1);
    END IF;
    RETURN given;
END $$;

-- Review the keys of these queues that something happened to since the last claim, some at a time.
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
