-- Requests to a run: send, cancel, retry, resume and decide. Beginning its compensation.

-- id, name, message, value, messages_max, by
CREATE FUNCTION send__v(v jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
    sent bigint;
BEGIN
    r := run__v(v->>0);
    IF r.pk IS NULL THEN
        RETURN refused__v('unknown', '');
    ELSIF r.workflow = '' THEN
        RETURN refused__v('status', 'item');
    ELSIF r.ended IS NOT NULL THEN
        RETURN refused__v('status', r.status);
    END IF;
    sent := (SELECT coalesce(max(m.number), 0) FROM messages m WHERE m.run = r.pk);
    IF sent >= (v->>4)::bigint AND NOT EXISTS (
        SELECT 1 FROM messages m WHERE m.run = r.pk AND md5(m.name) = md5(v->>1)
            AND md5(m.id) = md5(v->>2)
    ) THEN
        RETURN refused__v('depth', sent::text);
    END IF;
    INSERT INTO messages (run, number, name, id, value, at, by)
        VALUES (r.pk, sent + 1, v->>1, v->>2, v->>3, now, v->>5)
    ON CONFLICT (run, md5(name), md5(id)) DO NOTHING;
    IF FOUND AND r.status = 'waiting' AND strpos(r.waits, E'\n' || (v->>1) || E'\n') > 0 THEN
        PERFORM make_due__v(r, now);
    END IF;
    RETURN NULL;
END $$;

-- id, why
CREATE FUNCTION cancel__v(id text, why text, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs := run__v(id);
    at_rest boolean := r.status IN ('parked', 'dead');
BEGIN
    IF r.pk IS NULL THEN
        RETURN refused__v('unknown', '');
    ELSIF r.ended IS NOT NULL AND r.status <> 'dead' THEN
        RETURN refused__v('status', r.status);
    ELSIF r.undoing IS NOT NULL THEN
        RETURN refused__v('status', 'undoing');
    ELSIF at_rest AND may_need_compensation__v(r) THEN
        PERFORM begin_undo__v(r, cancelled__v(coalesce(r.cancel, why)), now);
        RETURN '"queued"';
    ELSIF at_rest OR r.started IS NULL OR (r.workflow = '' AND r.worker IS NULL) THEN
        UPDATE runs SET status = 'cancelled', cancel = coalesce(cancel, why),
            reason = coalesce(cancel, why), fence = -abs(fence),
                        ended = now, waits = '', ready = 0
        WHERE pk = r.pk;
        PERFORM wake_parent__v(r.parent, now);
        RETURN '"cancelled"';
    END IF;
    UPDATE runs SET cancel = coalesce(cancel, why), due = least(due, now),
                    ready = CASE WHEN status NOT IN ('queued', 'waiting') THEN 0
                        ELSE readiness__v(deaths_in_a_row) END
    WHERE pk = r.pk;
    RETURN to_json(r.status);
END $$;

-- Return the requester as part of an entry's value, or nothing if it is unknown.
CREATE FUNCTION by_part__v(by text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN by IS NULL THEN '{}'::jsonb ELSE jsonb_build_object('by', by) END
$$;

-- id, token, seen, by
CREATE FUNCTION retry__v(v jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
    refused text;
BEGIN
    r := run__v(v->>0);
    IF r.pk IS NULL THEN
        RETURN refused__v('unknown', '');
    ELSIF was_asked__v(r, 'retry', v->>1) THEN
        RETURN NULL;
    ELSIF r.status IN ('failed', 'cancelled', 'dead')
        OR (r.status = 'parked' AND r.undoing IS NOT NULL) THEN
        refused := parent_refuses__v(r, (v->>2)::bigint);
        IF refused IS NOT NULL THEN
            RETURN refused;
        END IF;
        PERFORM requeue__v(r, v->>1, true, now);
        PERFORM mark__v(r, 'retry', '', (jsonb_build_object(
            -- A retried compensation continues with the whole journal.
            'from', CASE WHEN r.undoing IS NULL THEN r.failed_at END,
            'was', r.status, 'undoing', r.undoing IS NOT NULL, 'token', v->>1)
            || by_part__v(v->>3))::text, v->>1, now);
        RETURN NULL;
    ELSE
        RETURN refused__v('status', r.status);
    END IF;
END $$;

-- Return why a child cannot be retried without its parent, or NULL if it can. The parent's row is
-- locked, so it records nothing and does not end meanwhile.
CREATE FUNCTION parent_refuses__v(r runs, seen bigint) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    p runs;
    last bigint;
BEGIN
    IF r.parent IS NULL OR r.undoing IS NOT NULL OR r.workflow = '(each)' THEN
        RETURN NULL;
    END IF;
    p := run__v(r.parent);
    IF p.pk IS NULL THEN
        RETURN refused__v('parent', 'gone');
    ELSIF p.undoing IS NOT NULL THEN
        RETURN refused__v('parent', 'undoing');
    ELSIF p.ended IS NOT NULL THEN
        RETURN refused__v('parent', p.status);
    ELSIF seen IS NOT NULL THEN
        last := (SELECT coalesce(max(seq), 0) FROM entries WHERE run = p.pk);
        IF last <> seen THEN
            RETURN refused__v('version', last::text);
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- id, token, by
CREATE FUNCTION resume__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
BEGIN
    r := run__v(v->>0);
    IF r.pk IS NULL THEN
        RETURN refused__v('unknown', '');
    ELSIF was_asked__v(r, 'resume', v->>1) THEN
        RETURN NULL;
    ELSIF r.status = 'parked' OR (r.workflow = '(each)' AND r.status = 'done') THEN
        PERFORM requeue__v(r, v->>1, false, now);
        PERFORM mark__v(r, 'resume', '',
                        (jsonb_build_object('from', r.failed_at, 'was', r.status, 'token',
                            v->>1) || by_part__v(v->>2))::text, v->>1, now);
        RETURN NULL;
    ELSE
        RETURN refused__v('status', r.status);
    END IF;
END $$;

-- id, key, decision (with the token in it), seen, token, verdict
CREATE FUNCTION decide__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
    last bigint;
BEGIN
    r := run__v(v->>0);
    SELECT coalesce(max(seq), 0) INTO last FROM entries WHERE run = r.pk;
    IF r.pk IS NULL THEN
        RETURN refused__v('unknown', '');
    ELSIF was_asked__v(r, 'decision', v->>4) THEN
        RETURN NULL;
    ELSIF r.status <> 'parked' THEN
        RETURN refused__v('status', r.status);
    ELSIF last <> (v->>3)::bigint THEN
        RETURN refused__v('version', last::text);
    ELSE
        PERFORM requeue__v(r, v->>4, false, now);
        PERFORM mark__v(r, 'decision', v->>1, v->>2, v->>4, now);
        IF v->>5 IS NOT NULL THEN
            PERFORM begin_undo__v(run__v(r.pk), v->>5, now);
        END IF;
        RETURN NULL;
    END IF;
END $$;

CREATE FUNCTION was_asked__v(r runs, kind text, token text) RETURNS boolean
    LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (SELECT 1 FROM entries e WHERE e.run = r.pk AND e.token = was_asked__v.token
        AND e.kind = was_asked__v.kind)
$$;

CREATE FUNCTION requeue__v(r runs, by text, again boolean, now double precision) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE runs SET status = 'queued', fence = -abs(fence), worker = NULL, due = now, ended = NULL,
        reason = NULL,
                    token = requeue__v.by, value = NULL, error = NULL, failed_at = NULL, waits = '',
                        deaths = 0, ready = 1,
                    -- A cancellation may have arrived while the run was being parked.
                    cancel = CASE WHEN again THEN NULL ELSE cancel END,
                    -- The run has a journal, so it counts as executed.
                    deaths_in_a_row = 0, interruptions_in_a_row = 0, failures = 0,
                        lives = greatest(lives, 1),
                    left_by = NULL, left_at = NULL,
                    released = coalesce(released, ended),
                        released_as = coalesce(released_as, status),
                    deadline = CASE WHEN undoing IS NOT NULL THEN NULL
                                    WHEN again THEN now + timeout
                                        ELSE deadline + now - coalesce(ended, due) END
    WHERE pk = r.pk;
END $$;

-- run, fence, verdict
CREATE FUNCTION undo__v(v jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
BEGIN
    r := run__v((v->>0)::bigint);
    IF r.fence = (v->>1)::bigint AND r.fence > 0 THEN
        IF r.undoing IS NOT NULL THEN
            RETURN refused__v('status', 'undoing');
        END IF;
        PERFORM begin_undo__v(r, v->>2, now);
        RETURN NULL;
    ELSIF r.fence = -(v->>1)::bigint AND r.fence < 0 AND r.status = 'queued'
        AND r.undoing = v->>2 THEN
        RETURN NULL;
    ELSE
        RETURN refused__v('fence', '');
    END IF;
END $$;

-- id, parent, why, unheld
CREATE FUNCTION undo_child__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs;
BEGIN
    r := run__v(v->>0);
    IF r.pk IS NULL OR r.parent IS DISTINCT FROM v->>1 THEN
        RETURN refused__v('unknown', '');
    ELSIF (r.status = 'done' AND may_need_compensation__v(r))
          OR ((v->>3)::boolean AND r.worker IS NULL AND r.started IS NOT NULL AND r.undoing IS NULL
              AND r.status IN ('queued', 'waiting', 'parked', 'dead')) THEN
        PERFORM begin_undo__v(r, cancelled__v(v->>2), now);
        RETURN '"queued"';
    ELSE
        RETURN to_json(r.status)::text;
    END IF;
END $$;

-- Begin the compensation of a run: queue it, without a worker.
CREATE FUNCTION begin_undo__v(r runs, verdict text, now double precision) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE runs SET undoing = verdict, status = 'queued', fence = -abs(fence), worker = NULL,
        released = CASE WHEN worker IS NULL THEN coalesce(released, ended) ELSE now END,
        released_as = CASE WHEN worker IS NULL THEN coalesce(released_as, status)
            ELSE 'undoing' END,
        due = now, ready = 1,
                    interrupted = coalesce(interrupted, now), deaths_in_a_row = 0,
                        interruptions_in_a_row = 0, waits = '',
                    cancel = NULL, deadline = NULL, ended = NULL, error = NULL, reason = NULL,
                        failed_at = NULL
    WHERE pk = r.pk;
    PERFORM mark__v(r, 'undoing', '', verdict, NULL, now);
END $$;

-- Return the verdict of a cancelled run, as `outlast.store.commands.verdict` writes it.
CREATE FUNCTION cancelled__v(reason text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '{"status": "cancelled", "value": null, "error": null, "reason": ' || to_json(reason)::text || ', "failed_at": null}'
$$;

-- Return whether there may be something to compensate.
CREATE FUNCTION may_need_compensation__v(r runs) RETURNS boolean
    LANGUAGE sql VOLATILE SETTINGS__v AS $$
    SELECT EXISTS (SELECT 1 FROM runs WHERE parent = r.id)
        OR EXISTS (SELECT 1 FROM entries e WHERE e.run = r.pk
            AND e.kind IN ('intent', 'compensation', 'child'))
$$;
