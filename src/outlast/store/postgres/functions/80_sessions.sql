-- Sessions: fields, lists, versions and an expiry.

-- session, token, fields, ttl, version, appends {field: [values, keep]}, space, record
CREATE FUNCTION keep__v(verbs jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v jsonb;
    said text;
    outcome text;
    outcomes text[];
BEGIN
    FOR v IN SELECT value FROM jsonb_array_elements(verbs) LOOP
        IF v->>7 IS NULL THEN
            outcomes := outcomes || change__v(v, now);
            CONTINUE;
        END IF;
        said := said__v(v->7);
        IF said IS NULL THEN
            outcome := change__v(v, now);
            PERFORM note__v(v->7, CASE WHEN outcome LIKE '{%' THEN '{"conflict": ' || (outcome::json->'!'->>1) || '}' ELSE '{"version": ' || outcome || '}' END);
        ELSIF said LIKE '{"!"%' THEN
            outcome := said;
        ELSE
            outcome := coalesce(said::json->>'version', refused__v('version', said::json->>'conflict'));
        END IF;
        outcomes := outcomes || outcome;
    END LOOP;
    RETURN '[' || array_to_string(outcomes, ',') || ']';
END $$;

-- session, space, record
CREATE FUNCTION forget__v(verbs jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v jsonb;
    said text;
    outcomes text[];
BEGIN
    FOR v IN SELECT value FROM jsonb_array_elements(verbs) LOOP
        IF v->>2 IS NOT NULL THEN
            said := said__v(v->2);
            IF said IS NOT NULL THEN
                outcomes := outcomes || CASE WHEN said LIKE '{"!"%' THEN said ELSE 'null' END;
                CONTINUE;
            END IF;
            PERFORM note__v(v->2, '{}');
        END IF;
        PERFORM drop_sessions__v(ARRAY(SELECT pk FROM sessions WHERE space = v->>1 AND id = v->>0 FOR UPDATE));
        outcomes := outcomes || 'null'::text;
    END LOOP;
    RETURN '[' || array_to_string(outcomes, ',') || ']';
END $$;

-- session, ttl, space
CREATE FUNCTION touch__v(verbs jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v jsonb;
BEGIN
    FOR v IN SELECT value FROM jsonb_array_elements(verbs) LOOP
        UPDATE sessions SET expires = now + (v->>1)::double precision
        WHERE space = v->>2 AND id = v->>0 AND (expires IS NULL OR expires > now);
    END LOOP;
    RETURN NULL;
END $$;

-- What the entry says if this is a repeat; a refusal if it may not be written; NULL if it may.
CREATE FUNCTION said__v(record jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs := run__v((record->>0)::bigint);
    e entries;
BEGIN
    SELECT * INTO e FROM entries WHERE run = (record->>0)::bigint AND seq = (record->>1)::bigint;
    IF e.fence = (record->>2)::bigint THEN
        RETURN e.value;
    ELSIF e.run IS NOT NULL OR r.pk IS NULL OR r.fence <> (record->>2)::bigint OR r.fence <= 0 THEN
        RETURN refused__v('fence', '');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION note__v(record jsonb, said text) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT record_one__v(jsonb_set(record, '{7}', to_jsonb(said)), true)
$$;

CREATE FUNCTION change__v(v jsonb, now double precision) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    s sessions;
    until double precision := now + (v->>3)::double precision;
    is_over boolean;
    made bigint;
    part record;
BEGIN
    LOOP  -- until it is there, and locked: of two who make it, one is the first
        SELECT * INTO s FROM sessions WHERE space = v->>6 AND id = v->>0 FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO sessions (space, id, version, updated, tokens) VALUES (v->>6, v->>0, 0, now, '[]') ON CONFLICT DO NOTHING;
    END LOOP;
    is_over := s.version = 0 OR coalesce(s.expires <= now, false);
    IF is_over AND (v->>4)::bigint <> 0 THEN
        DELETE FROM sessions WHERE pk = s.pk AND version = 0;
        RETURN refused__v('version', '0');
    ELSIF NOT is_over THEN
        SELECT (t->>1)::bigint INTO made FROM jsonb_array_elements(s.tokens) t WHERE t->>0 = v->>1;
        IF FOUND THEN
            RETURN made;
        ELSIF (v->>4)::bigint <> s.version THEN
            RETURN refused__v('version', s.version::text);
        END IF;
    ELSIF s.version > 0 THEN  -- nothing of it comes back
        PERFORM drop_sessions__v(ARRAY[s.pk]);
        INSERT INTO sessions (space, id, version, updated, tokens) VALUES (v->>6, v->>0, 0, now, '[]') RETURNING * INTO s;
    END IF;
    UPDATE sessions SET version = s.version + 1, updated = now, expires = until,
        tokens = (SELECT jsonb_agg(t ORDER BY n) FROM jsonb_array_elements(s.tokens || jsonb_build_array(jsonb_build_array(v->>1, s.version + 1)))
                  WITH ORDINALITY e(t, n) WHERE n > jsonb_array_length(s.tokens) + 1 - TOKENS_MAX__v)
    WHERE pk = s.pk;
    FOR part IN SELECT * FROM jsonb_each_text(v->2) LOOP
        DELETE FROM session_items WHERE session = s.pk AND field = part.key;
        IF part.value IS NULL THEN
            DELETE FROM session_fields WHERE session = s.pk AND field = part.key;
        ELSE
            INSERT INTO session_fields (session, field, value) VALUES (s.pk, part.key, part.value)
            ON CONFLICT (session, field) DO UPDATE SET value = excluded.value, first = NULL, last = NULL;
        END IF;
    END LOOP;
    FOR part IN SELECT * FROM jsonb_each(v->5) LOOP
        PERFORM lengthen__v(s.pk, part.key, texts__v(part.value->0), (part.value->>1)::bigint);
    END LOOP;
    RETURN s.version + 1;
END $$;

CREATE FUNCTION lengthen__v(pk bigint, name text, more text[], keep bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    f session_fields;
BEGIN
    INSERT INTO session_fields AS had (session, field, first, last) VALUES (pk, name, 1, cardinality(more))
    ON CONFLICT (session, field) DO UPDATE SET value = NULL, first = coalesce(had.first, 1), last = coalesce(had.last, 0) + cardinality(more)
    RETURNING * INTO f;
    INSERT INTO session_items (session, field, number, value)
    SELECT pk, name, f.last - cardinality(more) + n, item FROM unnest(more) WITH ORDINALITY e(item, n);
    IF f.last - f.first + 1 > keep THEN
        UPDATE session_fields SET first = f.last - keep + 1 WHERE session = pk AND field = name;
        DELETE FROM session_items WHERE session = pk AND field = name AND number <= f.last - keep;
    END IF;
END $$;

CREATE FUNCTION drop_sessions__v(pks bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM session_items WHERE session = ANY(pks);
    DELETE FROM session_fields WHERE session = ANY(pks);
    DELETE FROM sessions WHERE pk = ANY(pks);
END $$;
