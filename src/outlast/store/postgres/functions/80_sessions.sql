-- Commands on sessions. 81_session_changes.sql applies the changes.

-- session, token, fields, ttl, version, appends {field: [values, keep]}, space, record, extends,
-- absent, pops {field: count}, replaces {field: [at, value]}, clear, take, owner, limits [fields,
-- items, popped]. The outcome is {"version": …}, the value of a recorded entry, or a refusal.
CREATE FUNCTION update_session__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    outcome text;
BEGIN
    IF v->>7 IS NOT NULL THEN
        outcome := recorded__v(v->7);
    END IF;
    IF outcome IS NULL THEN
        outcome := change__v(v, now);
        IF v->>7 IS NOT NULL THEN
            PERFORM record_value__v(v->7, regexp_replace(outcome, '^{"!":', '{"refused": '));
        END IF;
    END IF;
    RETURN outcome;
END $$;

-- changes, record
CREATE FUNCTION update_sessions__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    outcome text;
BEGIN
    IF v->>1 IS NOT NULL THEN
        outcome := recorded__v(v->1);
    END IF;
    IF outcome IS NULL THEN
        outcome := change_all__v(v->0, now);
        IF v->>1 IS NOT NULL THEN
            PERFORM record_value__v(v->1, regexp_replace(outcome, '^{"!":', '{"refused": '));
        END IF;
    END IF;
    RETURN outcome;
END $$;

-- session, token, space, record
CREATE FUNCTION delete_session__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    s sessions;
    said text;
BEGIN
    IF v->>3 IS NOT NULL THEN
        said := recorded__v(v->3);
        IF said IS NOT NULL THEN
            RETURN CASE WHEN said LIKE '{"!"%' THEN said ELSE 'null' END;
        END IF;
        PERFORM record_value__v(v->3, '{}');
    END IF;
    s := session__v(v->>2, v->>0, now);
    IF answered__v(s.tokens, v->>1) IS NULL THEN
        PERFORM erase__v(s, add_token__v(s.tokens, v->>1, '0'), now);
    END IF;
    RETURN NULL;
END $$;

-- session, ttl, space
CREATE FUNCTION extend_session__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE sessions SET expires = CASE WHEN v->>1 IS NOT NULL
        THEN greatest(expires, now + (v->>1)::double precision) END
    WHERE space = v->>2 AND id = v->>0 AND version > 0 AND expires > now;
    RETURN NULL;
END $$;

-- Return the recorded value if this is a repeat, a refusal if the entry must not be written, else
-- NULL.
CREATE FUNCTION recorded__v(record jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs := run__v((record->>0)::bigint);
    e entries;
BEGIN
    SELECT * INTO e FROM entries WHERE run = (record->>0)::bigint AND seq = (record->>1)::bigint;
    IF e.fence = (record->>2)::bigint THEN
        RETURN e.value;
    ELSIF r.pk IS NULL OR r.fence <> (record->>2)::bigint OR r.fence <= 0
          OR (record->>1)::bigint <> (SELECT coalesce(max(last.seq), 0) + 1 FROM entries last
              WHERE last.run = r.pk) THEN
        RETURN refused__v('fence', '');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION record_value__v(record jsonb, said text) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT record_one__v(jsonb_set(record, '{7}', to_jsonb(said)))
$$;

-- Lock the row of a session and return it. Create it if it does not exist.
CREATE FUNCTION session__v(its_space text, its_id text, now double precision) RETURNS sessions
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    s sessions;
BEGIN
    LOOP
        SELECT * INTO s FROM sessions WHERE space = its_space AND id = its_id FOR NO KEY UPDATE;
        IF FOUND THEN
            RETURN s;
        END IF;
        INSERT INTO sessions (space, id, version, updated, expires, tokens)
            VALUES (its_space, its_id, 0, now, now, '[]') ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- Delete the contents of a session, but keep its row with the tokens of its changes. A call that
-- waits for the row's lock then gets this row, and readers see no session.
CREATE FUNCTION erase__v(INOUT s sessions, its_tokens jsonb, now double precision)
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM session_items WHERE session = s.pk;
    DELETE FROM session_fields WHERE session = s.pk;
    UPDATE sessions u SET version = 0, updated = now, expires = now, owner = NULL, size = 0,
        tokens = its_tokens
        WHERE u.pk = s.pk RETURNING u.* INTO s;
END $$;

-- Return the answer of an earlier change with this token, or NULL.
CREATE FUNCTION answered__v(tokens jsonb, token text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (
        SELECT CASE jsonb_typeof(t->1) WHEN 'number' THEN jsonb_build_object('version', t->1)
            ELSE t->1 END
        FROM jsonb_array_elements(tokens) t WHERE t->>0 = token);
END $$;

-- Return the tokens with one more change and its answer. If the answer is only a version, the
-- number alone is kept.
CREATE FUNCTION add_token__v(tokens jsonb, token text, answer jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (
        SELECT jsonb_agg(t ORDER BY n)
            FROM jsonb_array_elements(tokens || jsonb_build_array(jsonb_build_array(token,
                answer)))
        WITH ORDINALITY e(t, n) WHERE n > jsonb_array_length(tokens) + 1 - TOKENS_MAX__v);
END $$;

CREATE FUNCTION drop_sessions__v(pks bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM session_items WHERE session = ANY(pks);
    DELETE FROM session_fields WHERE session = ANY(pks);
    DELETE FROM sessions WHERE pk = ANY(pks);
END $$;
