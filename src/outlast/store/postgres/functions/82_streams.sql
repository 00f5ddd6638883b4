-- Streams that a run publishes. The command Publish numbers the rules.

-- run, fence, stream, writer, attempt, after, number of values, array of values, resumes, last,
-- record, maximum length of a joined row
CREATE FUNCTION publish__v(v jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    r runs := run__v((v->>0)::bigint);
    entry jsonb := v->10;
    outcome text;
BEGIN
    IF v->>10 IS NOT NULL THEN
        PERFORM 1 FROM entries WHERE run = (entry->>0)::bigint AND seq = (entry->>1)::bigint
            AND fence = (entry->>2)::bigint;
        IF FOUND THEN
            RETURN NULL;
        ELSIF (entry->>1)::bigint <> (SELECT coalesce(max(seq), 0) + 1 FROM entries
            WHERE run = (entry->>0)::bigint) THEN
            RETURN refused__v('fence', '');
        END IF;
    END IF;
    IF r.pk IS NULL OR r.fence <> (v->>1)::bigint OR r.fence <= 0 THEN
        RETURN refused__v('fence', '');
    END IF;
    outcome := publish_part__v(v);
    IF outcome IS NULL AND v->>10 IS NOT NULL THEN
        PERFORM record_one__v(entry);
    END IF;
    RETURN outcome;
END $$;

-- Apply rules 2 to 6.
CREATE FUNCTION publish_part__v(v jsonb) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    pk bigint := (v->>0)::bigint;
    mine bigint := (v->>1)::bigint;
    attempt bigint := (v->>4)::bigint;
    after bigint := (v->>5)::bigint;
    more bigint := (v->>6)::bigint;
    s streams;
    p stream_parts;
    expected bigint;
    is_own boolean;
BEGIN
    SELECT * INTO p FROM stream_parts t WHERE t.run = pk AND t.stream = v->>2 AND t.writer = v->>3;
    IF NOT FOUND THEN
        p := ROW(pk, v->>2, v->>3, mine, attempt, 0, 0);
    END IF;
    is_own := p.fence = mine AND p.attempt = attempt;
    IF p.fence = mine AND p.attempt > attempt THEN
        RETURN NULL;
    END IF;
    expected := CASE WHEN is_own OR (v->>8)::boolean THEN p.length ELSE 0 END;
    IF after <> expected THEN
        RETURN CASE WHEN NOT is_own OR after + more > p.length
            THEN refused__v('offset', p.length::text) END;
    END IF;
    SELECT * INTO s FROM streams t WHERE t.run = pk AND t.name = v->>2;
    IF NOT FOUND THEN
        s := ROW(pk, v->>2, 0, 0);
    END IF;
    IF p.length > expected THEN
        s := replace_part__v(s, p);
        p.length := 0;
    END IF;
    IF p.length = 0 THEN
        p.first := s.stop;
    END IF;
    IF more > 0 THEN
        INSERT INTO stream_chunks (run, stream, first, writer, count, value)
        VALUES (pk, p.stream, s.stop, p.writer, more, v->>7);
    END IF;
    INSERT INTO streams AS t (run, name, start, stop) VALUES (pk, s.name, s.start, s.stop + more)
    ON CONFLICT (run, name) DO UPDATE SET start = excluded.start, stop = excluded.stop;
    INSERT INTO stream_parts AS t (run, stream, writer, fence, attempt, length, first)
    VALUES (pk, p.stream, p.writer, mine, attempt, p.length + more, p.first)
    ON CONFLICT (run, stream, writer) DO UPDATE SET fence = excluded.fence,
        attempt = excluded.attempt, length = excluded.length, first = excluded.first;
    IF (v->>9)::boolean THEN
        PERFORM fold_part__v(p, (v->>11)::bigint);
    END IF;
    RETURN NULL;
END $$;

-- Begin a new generation of the stream without this part. All its positions are greater than the
-- earlier ones, so no chunk moves to an occupied position.
CREATE FUNCTION replace_part__v(s streams, p stream_parts) RETURNS streams
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moved bigint;
BEGIN
    DELETE FROM stream_chunks c WHERE c.run = s.run AND c.stream = s.name AND c.first >= p.first
        AND c.writer = p.writer;
    s.start := s.stop + 1;
    WITH places AS (
        SELECT c.first AS was, s.start + (sum(c.count) OVER (ORDER BY c.first) - c.count)::bigint
            AS first
        FROM stream_chunks c WHERE c.run = s.run AND c.stream = s.name
    ), moves AS (
        UPDATE stream_chunks c SET first = places.first FROM places
        WHERE c.run = s.run AND c.stream = s.name AND c.first = places.was
        RETURNING c.writer, c.first, c.count
    ), parts AS (
        UPDATE stream_parts t SET first = m.first
        FROM (SELECT writer, min(first) AS first FROM moves GROUP BY writer) m
        WHERE t.run = s.run AND t.stream = s.name AND t.writer = m.writer
    )
    SELECT coalesce(sum(count), 0) INTO moved FROM moves;
    s.stop := s.start + moved;
    RETURN s;
END $$;

-- Join adjacent rows of a part, up to `most` characters per row.
CREATE FUNCTION fold_part__v(p stream_parts, most bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c stream_chunks;
    firsts bigint[] := '{}';
    texts text[] := '{}';
    total bigint := 0;
    size bigint := 0;
BEGIN
    FOR c IN SELECT * FROM stream_chunks t WHERE t.run = p.run AND t.stream = p.stream
        AND t.first >= p.first ORDER BY t.first LOOP
        IF c.writer <> p.writer OR size + length(c.value) > most THEN
            PERFORM fold_rows__v(p, firsts, texts, total);
            firsts := '{}';
            texts := '{}';
            total := 0;
            size := 0;
        END IF;
        IF c.writer = p.writer THEN
            firsts := firsts || c.first;
            texts := texts || substr(c.value, 2, length(c.value) - 2);
            total := total + c.count;
            size := size + length(c.value);
        END IF;
    END LOOP;
    PERFORM fold_rows__v(p, firsts, texts, total);
END $$;

CREATE FUNCTION fold_rows__v(p stream_parts, firsts bigint[], texts text[], total bigint)
    RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF cardinality(firsts) > 1 THEN
        DELETE FROM stream_chunks c WHERE c.run = p.run AND c.stream = p.stream
            AND c.first = ANY(firsts[2:]);
        UPDATE stream_chunks c SET count = total, value = '[' || array_to_string(texts, ',') || ']'
        WHERE c.run = p.run AND c.stream = p.stream AND c.first = firsts[1];
    END IF;
END $$;
