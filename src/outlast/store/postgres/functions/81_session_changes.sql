-- Changing sessions. A change is planned first, which checks every condition, and then written. So
-- several changes can be planned before the first one is written.

CREATE FUNCTION change__v(v jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    s sessions := session__v(v->>6, v->>0, now);
    made jsonb := answered__v(s.tokens, v->>1);
    plan jsonb;
BEGIN
    IF made IS NOT NULL THEN
        RETURN made;
    END IF;
    plan := plan__v(v, s, now, true);
    IF plan ? '!' THEN
        PERFORM delete_created__v(ARRAY[s.pk]);
        RETURN refused__v(plan->'!'->>0, plan->'!'->>1);
    END IF;
    RETURN write__v(v, s, plan, now);
END $$;

CREATE FUNCTION change_all__v(changes jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found sessions[] := '{}';
    made jsonb[] := '{}';
    plans jsonb[] := '{}';
    answers text[] := '{}';
    s sessions;
    v jsonb;
    plan jsonb;
BEGIN
    FOR v IN SELECT value FROM jsonb_array_elements(changes) LOOP
        s := session__v(v->>6, v->>0, now);
        found := found || s;
        made := made || answered__v(s.tokens, v->>1);
    END LOOP;
    IF EXISTS (SELECT 1 FROM unnest(made) m WHERE m IS NOT NULL) THEN  -- A repeat.
        FOR i IN 1..cardinality(found) LOOP
            s := found[i];
            answers := answers || coalesce(made[i], jsonb_build_object('version',
                CASE WHEN s.expires <= now THEN 0 ELSE s.version END))::text;
        END LOOP;
        PERFORM delete_created__v(ARRAY(SELECT pk FROM unnest(found)));
        RETURN '{"changes": [' || array_to_string(answers, ', ') || ']}';
    END IF;
    FOR i IN 1..cardinality(found) LOOP
        plan := plan__v(changes->(i - 1), found[i], now, false);
        IF plan ? '!' THEN
            PERFORM delete_created__v(ARRAY(SELECT pk FROM unnest(found)));
            RETURN refused__v(plan->'!'->>0, (i - 1)::text || '/' || (plan->'!'->>1));
        END IF;
        plans := plans || plan;
    END LOOP;
    FOR i IN 1..cardinality(found) LOOP
        answers := answers || write__v(changes->(i - 1), found[i], plans[i], now);
    END LOOP;
    RETURN '{"changes": [' || array_to_string(answers, ', ') || ']}';
END $$;

-- Delete those of these rows that only this command created.
CREATE FUNCTION delete_created__v(pks bigint[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM sessions WHERE pk = ANY(pks) AND version = 0 AND tokens = '[]';
END $$;

-- Return what a change is going to do, or {"!": [why, detail]}:
--   was, becomes   the fields it changes: null for a value, [first, last] for a list
--   sets           {field: value, or null to delete it}
--   popped         {field: [values]}
--   replaced       {field: number of the item}
--   size           the number of fields and lists afterwards
-- A change with nothing to set is refused only if it is the only one (`alone`).
CREATE FUNCTION plan__v(v jsonb, s sessions, now double precision, alone boolean) RETURNS jsonb
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    here boolean := s.version > 0 AND (s.expires IS NULL OR s.expires > now);
    version bigint := CASE WHEN here THEN s.version ELSE 0 END;
    owner bigint := CASE WHEN here THEN s.owner END;
    size bigint := CASE WHEN here THEN s.size ELSE 0 END;
    had bigint := size;
    clears boolean := (v->>12)::boolean;
    was jsonb := '{}';
    becomes jsonb;
    sets jsonb := v->2;
    popped jsonb := '{}';
    replaced jsonb := '{}';
    missing text;
    part record;
    first bigint;
    last bigint;
    cut bigint;
BEGIN
    IF v->>14 IS NOT NULL AND owner IS DISTINCT FROM (v->>14)::bigint THEN
        RETURN refusal__v('owner', coalesce(owner::text, ''));
    ELSIF v->>4 IS NOT NULL AND (v->>4)::bigint <> version THEN
        RETURN refusal__v('version', version::text);
    END IF;
    IF clears THEN
        size := 0;
    ELSIF here THEN
        was := (SELECT coalesce(jsonb_object_agg(f.field, CASE WHEN f.first IS NOT NULL
                THEN jsonb_build_array(f.first, f.last) END), '{}')
            FROM session_fields f WHERE f.session = s.pk AND f.field = ANY(ARRAY(
                SELECT jsonb_object_keys((v->2) || (v->5) || (v->10) || (v->11)))));
    END IF;
    IF v->9 <> '[]' AND was <> '{}' THEN
        sets := sets - ARRAY(SELECT a FROM jsonb_array_elements_text(v->9) a WHERE was ? a);
        IF alone AND v->2 <> '{}' AND sets = '{}' AND v->5 = '{}' AND v->10 = '{}' AND v->11 = '{}'
            AND NOT (v->>13)::boolean THEN
            RETURN refusal__v('present', version::text);
        END IF;
    END IF;
    becomes := was;
    IF sets <> '{}' THEN
        becomes := (becomes - ARRAY(SELECT jsonb_object_keys(sets)))
            || (SELECT coalesce(jsonb_object_agg(key, NULL), '{}') FROM jsonb_each_text(sets)
                WHERE value IS NOT NULL);
    END IF;
    -- Most changes only set fields.
    IF v->5 = '{}' AND v->10 = '{}' AND v->11 = '{}' THEN
        size := size + (SELECT count(*) FROM jsonb_object_keys(becomes))
            - (SELECT count(*) FROM jsonb_object_keys(was));
        RETURN coalesce(
            over_limit__v(v, was, becomes, popped, had, size),
            jsonb_build_object('was', was, 'becomes', becomes, 'sets', sets, 'popped', popped,
                'replaced', replaced, 'size', size));
    END IF;
    FOR part IN SELECT key, greatest(value::bigint, 0) AS count FROM jsonb_each_text(v->10) LOOP
        first := (becomes->part.key->>0)::bigint;
        last := (becomes->part.key->>1)::bigint;
        cut := greatest(first, last - part.count + 1);
        IF cut <= last THEN
            popped := popped || jsonb_build_object(part.key, (SELECT jsonb_agg(i.value ORDER BY
                i.number) FROM session_items i WHERE i.session = s.pk AND i.field = part.key
                    AND i.number >= cut));
        END IF;
        IF cut > first THEN
            becomes := becomes || jsonb_build_object(part.key, jsonb_build_array(first, cut - 1));
        ELSIF first IS NOT NULL THEN
            becomes := becomes - part.key;
        END IF;
    END LOOP;
    FOR part IN SELECT key, (value->>0)::bigint AS at FROM jsonb_each(v->11)
        ORDER BY key COLLATE "C" LOOP
        first := (becomes->part.key->>0)::bigint;
        last := (becomes->part.key->>1)::bigint;
        IF first IS NULL OR part.at > last - first OR part.at < first - last - 1 THEN
            missing := coalesce(missing,
                coalesce(last - first + 1, 0)::text || '/' || part.key);
        ELSE
            replaced := replaced || jsonb_build_object(part.key,
                CASE WHEN part.at < 0 THEN last + 1 ELSE first END + part.at);
        END IF;
    END LOOP;
    IF missing IS NOT NULL THEN
        RETURN refusal__v('index', missing);
    END IF;
    FOR part IN SELECT key, jsonb_array_length(value->0) AS count, (value->>1)::bigint AS keep
        FROM jsonb_each(v->5) LOOP
        first := coalesce((becomes->part.key->>0)::bigint, 1);
        last := coalesce((becomes->part.key->>1)::bigint, 0) + part.count;
        becomes := becomes || jsonb_build_object(part.key,
            jsonb_build_array(greatest(first, last - part.keep + 1), last));
    END LOOP;
    size := size + (SELECT count(*) FROM jsonb_object_keys(becomes))
        - (SELECT count(*) FROM jsonb_object_keys(was));
    RETURN coalesce(
        over_limit__v(v, was, becomes, popped, had, size),
        jsonb_build_object('was', was, 'becomes', becomes, 'sets', sets, 'popped', popped,
            'replaced', replaced, 'size', size));
END $$;

-- Return a refusal with the limit that a change would exceed, or NULL.
CREATE FUNCTION over_limit__v(v jsonb, was jsonb, becomes jsonb, popped jsonb, had bigint, size bigint)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    limits jsonb := v->15;
    part record;
    needed bigint;
BEGIN
    IF limits = 'null' THEN
        RETURN NULL;
    ELSIF size > greatest((limits->>0)::bigint, had) THEN
        RETURN refusal__v('limit', format('fields/%s/%s/', limits->>0, size));
    ELSIF v->5 = '{}' AND popped = '{}' THEN
        RETURN NULL;
    END IF;
    FOR part IN SELECT k, (becomes->k->>1)::bigint - (becomes->k->>0)::bigint + 1 AS count,
            coalesce((was->k->>1)::bigint - (was->k->>0)::bigint + 1, 0) AS before
        FROM jsonb_object_keys(v->5) k ORDER BY k COLLATE "C" LOOP
        IF part.count > greatest((limits->>1)::bigint, part.before) THEN
            RETURN refusal__v('limit', format('items/%s/%s/%s', limits->>1, part.count, part.k));
        END IF;
    END LOOP;
    IF popped <> '{}' THEN
        needed := (SELECT sum(length(item)) FROM jsonb_each(popped) p,
            jsonb_array_elements_text(p.value) item);
        IF needed > (limits->>2)::bigint THEN
            RETURN refusal__v('limit', format('popped/%s/%s/', limits->>2, needed));
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION refusal__v(why text, detail text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('!', jsonb_build_array(why, detail))
$$;

-- Write a planned change and return its answer.
CREATE FUNCTION write__v(v jsonb, s sessions, plan jsonb, now double precision) RETURNS text
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    here boolean := s.version > 0 AND (s.expires IS NULL OR s.expires > now);
    its_owner bigint := CASE WHEN here THEN s.owner END;
    answer jsonb;
BEGIN
    IF NOT here AND (v->2 <> '{}' OR v->10 <> '{}' OR (v->>12)::boolean) AND v->5 = '{}'
        AND NOT (v->>13)::boolean
        AND NOT EXISTS (SELECT 1 FROM jsonb_each_text(v->2) WHERE value IS NOT NULL) THEN
        PERFORM erase__v(s, add_token__v(s.tokens, v->>1, '0'), now);
        RETURN '{"version": 0}';
    ELSIF NOT here THEN  -- Expired contents must not reappear.
        s := erase__v(s, s.tokens, now);
    ELSIF (v->>12)::boolean THEN
        DELETE FROM session_items WHERE session = s.pk;
        DELETE FROM session_fields WHERE session = s.pk;
    END IF;
    answer := jsonb_build_object('version', s.version + 1);
    IF (v->>13)::boolean THEN
        its_owner := fences_from__v() + nextval('fences');
        answer := answer || jsonb_build_object('owner', its_owner);
    END IF;
    IF plan->'popped' <> '{}' THEN
        answer := answer || jsonb_build_object('popped', plan->'popped');
    END IF;
    UPDATE sessions u SET version = s.version + 1, updated = now, owner = its_owner,
        size = (plan->>'size')::bigint,
        tokens = add_token__v(s.tokens, v->>1,
            CASE WHEN answer - 'version' = '{}' THEN answer->'version' ELSE answer END),
        expires = CASE WHEN NOT (v->>8)::boolean OR NOT here THEN now + (v->>3)::double precision
                       WHEN s.expires IS NOT NULL AND v->>3 IS NOT NULL
                           THEN greatest(s.expires, now + (v->>3)::double precision) END
    WHERE u.pk = s.pk;
    PERFORM write_fields__v(s.pk, plan);
    IF v->5 <> '{}' OR plan->'popped' <> '{}' OR plan->'replaced' <> '{}' THEN
        PERFORM write_lists__v(s.pk, v, plan);
    END IF;
    RETURN answer;
END $$;

CREATE FUNCTION write_fields__v(its_pk bigint, plan jsonb) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    was jsonb := plan->'was';
    becomes jsonb := plan->'becomes';
BEGIN
    IF was <> '{}' THEN
        DELETE FROM session_items WHERE session = its_pk AND field = ANY(ARRAY(
            SELECT k FROM jsonb_object_keys(plan->'sets') k
            WHERE jsonb_typeof(was->k) = 'array'));
        DELETE FROM session_fields WHERE session = its_pk AND field = ANY(ARRAY(
            SELECT k FROM jsonb_object_keys(was) k WHERE NOT becomes ? k));
    END IF;
    IF plan->'sets' <> '{}' THEN
        INSERT INTO session_fields (session, field, value)
        SELECT its_pk, key, value FROM jsonb_each_text(plan->'sets')
            WHERE value IS NOT NULL AND jsonb_typeof(becomes->key) = 'null'
        ON CONFLICT (session, field) DO UPDATE
            SET value = excluded.value, first = NULL, last = NULL;
    END IF;
END $$;

CREATE FUNCTION write_lists__v(its_pk bigint, v jsonb, plan jsonb) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    becomes jsonb := plan->'becomes';
    part record;
BEGIN
    FOR part IN SELECT key, (plan->'was'->key->>1)::bigint - jsonb_array_length(value) AS last
        FROM jsonb_each(plan->'popped') LOOP
        DELETE FROM session_items WHERE session = its_pk AND field = part.key
            AND number > part.last;
    END LOOP;
    FOR part IN SELECT key, value::bigint AS number FROM jsonb_each_text(plan->'replaced') LOOP
        UPDATE session_items SET value = v->11->part.key->>1
        WHERE session = its_pk AND field = part.key AND number = part.number;
    END LOOP;
    FOR part IN SELECT key, texts__v(value->0) AS more, value->>1 AS keep,
            (becomes->key->>0)::bigint AS first, (becomes->key->>1)::bigint AS last
        FROM jsonb_each(v->5) LOOP
        INSERT INTO session_items (session, field, number, value)
        SELECT its_pk, part.key, part.last - cardinality(part.more) + n, item
            FROM unnest(part.more) WITH ORDINALITY e(item, n);
        IF part.keep IS NOT NULL THEN
            DELETE FROM session_items WHERE session = its_pk AND field = part.key
                AND number < part.first;
        END IF;
    END LOOP;
    IF v->5 <> '{}' OR plan->'popped' <> '{}' THEN
        INSERT INTO session_fields (session, field, first, last)
        SELECT its_pk, k, (becomes->k->>0)::bigint, (becomes->k->>1)::bigint
            FROM jsonb_object_keys((v->5) || (plan->'popped')) k
            WHERE jsonb_typeof(becomes->k) = 'array'
        ON CONFLICT (session, field) DO UPDATE
            SET value = NULL, first = excluded.first, last = excluded.last;
    END IF;
END $$;
