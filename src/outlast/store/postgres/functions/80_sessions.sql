-- Sessions: fields, lists, versions and an expiry.

-- session, token, fields, ttl, version, appends {field: [values, keep]}, space, record, extends
CREATE FUNCTION update_session__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    said text;
    outcome text;
BEGIN
    IF v->>7 IS NULL THEN
        RETURN change__v(v, now);
    END IF;
    said := said__v(v->7);
    IF said IS NULL THEN
        outcome := change__v(v, now);
        PERFORM note__v(v->7, CASE WHEN outcome LIKE '{%'
            THEN '{"conflict": ' || (outcome::json->'!'->>1) || '}'
                ELSE '{"version": ' || outcome || '}' END);
    ELSIF said LIKE '{"!"%' THEN
        outcome := said;
    ELSE
        outcome := coalesce(said::json->>'version', refused__v('version', said::json->>'conflict'));
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
        said := said__v(v->3);
        IF said IS NOT NULL THEN
            RETURN CASE WHEN said LIKE '{"!"%' THEN said ELSE 'null' END;
        END IF;
        PERFORM note__v(v->3, '{}');
    END IF;
    s := session__v(v->>2, v->>0, now);
    IF made__v(s.tokens, v->>1) IS NULL THEN
        PERFORM bury__v(s, with__v(s.tokens, v->>1, 0), now);
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

-- What the entry says if this is a repeat; a refusal if it may not be written; NULL if it may.
CREATE FUNCTION said__v(record jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
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

CREATE FUNCTION note__v(record jsonb, said text) RETURNS void LANGUAGE sql VOLATILE AS $$
    SELECT record_one__v(jsonb_set(record, '{7}', to_jsonb(said)))
$$;

CREATE FUNCTION change__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    s sessions := session__v(v->>6, v->>0, now);
    version bigint := CASE WHEN s.expires <= now THEN 0 ELSE s.version END;
    made bigint := made__v(s.tokens, v->>1);
    part record;
BEGIN
    IF made IS NOT NULL THEN
        RETURN made;
    ELSIF (v->>4)::bigint <> version THEN
        DELETE FROM sessions WHERE pk = s.pk AND tokens = '[]';  -- there was none
        RETURN refused__v('version', version::text);
    ELSIF version = 0 AND v->5 = '{}' AND v->2 <> '{}'
        AND NOT EXISTS (SELECT 1 FROM jsonb_each_text(v->2) WHERE value IS NOT NULL) THEN
        PERFORM bury__v(s, with__v(s.tokens, v->>1, 0), now);
        RETURN 0;
    ELSIF version = 0 THEN  -- nothing of it comes back
        s := bury__v(s, s.tokens, now);
    END IF;
    UPDATE sessions u SET version = s.version + 1, updated = now,
        tokens = with__v(s.tokens, v->>1, s.version + 1),
        expires = CASE WHEN NOT (v->>8)::boolean THEN now + (v->>3)::double precision
                       WHEN s.expires IS NOT NULL AND v->>3 IS NOT NULL
                           THEN greatest(s.expires, now + (v->>3)::double precision) END
    WHERE u.pk = s.pk;
    FOR part IN SELECT * FROM jsonb_each_text(v->2) LOOP
        DELETE FROM session_items WHERE session = s.pk AND field = part.key;
        IF part.value IS NULL THEN
            DELETE FROM session_fields WHERE session = s.pk AND field = part.key;
        ELSE
            INSERT INTO session_fields (session, field, value) VALUES (s.pk, part.key, part.value)
            ON CONFLICT (session, field) DO UPDATE
                SET value = excluded.value, first = NULL, last = NULL;
        END IF;
    END LOOP;
    FOR part IN SELECT * FROM jsonb_each(v->5) LOOP
        PERFORM lengthen__v(s.pk, part.key, texts__v(part.value->0), (part.value->>1)::bigint);
    END LOOP;
    RETURN s.version + 1;
END $$;

-- Its row, locked, which is made where there is none: of two who make it, one is the first.
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

-- Nothing of it stays but tokens: it is a tombstone, of which nobody sees anything. It is the same
-- row: who waits for its lock gets it.
CREATE FUNCTION bury__v(INOUT s sessions, its_tokens jsonb, now double precision)
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM session_items WHERE session = s.pk;
    DELETE FROM session_fields WHERE session = s.pk;
    UPDATE sessions u SET version = 0, updated = now, expires = now, tokens = its_tokens
        WHERE u.pk = s.pk RETURNING u.* INTO s;
END $$;

-- Which version a change has made; NULL if it is not known.
CREATE FUNCTION made__v(tokens jsonb, token text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (
        SELECT (t->>1)::bigint FROM jsonb_array_elements(tokens) t WHERE t->>0 = token);
END $$;

CREATE FUNCTION with__v(tokens jsonb, token text, version bigint) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (
        SELECT jsonb_agg(t ORDER BY n)
            FROM jsonb_array_elements(tokens || jsonb_build_array(jsonb_build_array(token,
                version)))
        WITH ORDINALITY e(t, n) WHERE n > jsonb_array_length(tokens) + 1 - TOKENS_MAX__v);
END $$;

CREATE FUNCTION lengthen__v(pk bigint, name text, more text[], keep bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    f session_fields;
BEGIN
    INSERT INTO session_fields AS had (session, field, first, last)
        VALUES (pk, name, 1, cardinality(more))
    ON CONFLICT (session, field) DO UPDATE SET value = NULL, first = coalesce(had.first, 1),
        last = coalesce(had.last, 0) + cardinality(more)
    RETURNING * INTO f;
    INSERT INTO session_items (session, field, number, value)
    SELECT pk, name, f.last - cardinality(more) + n, item
        FROM unnest(more) WITH ORDINALITY e(item, n);
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
