-- Publish to the streams of a run, and read them.

-- name: in_stream
run = :run AND stream = :stream

-- name: STREAM_PART
SELECT fence, attempt, length, first FROM stream_parts WHERE {in_stream} AND writer = :writer

-- name: STREAM_BOUNDS
SELECT start, stop FROM streams WHERE run = :run AND name = :stream

-- name: STREAM_SET
INSERT INTO streams (run, name, start, stop) VALUES (:run, :stream, :start, :stop)
ON CONFLICT (run, name) DO UPDATE SET start = excluded.start, stop = excluded.stop

-- name: STREAM_PART_SET
INSERT INTO stream_parts (run, stream, writer, fence, attempt, length, first)
VALUES (:run, :stream, :writer, :fence, :attempt, :length, :first)
ON CONFLICT (run, stream, writer) DO UPDATE SET fence = excluded.fence, attempt = excluded.attempt,
    length = excluded.length, first = excluded.first

-- name: STREAM_PART_MOVE
UPDATE stream_parts SET first = :first WHERE {in_stream} AND writer = :writer

-- name: STREAM_CHUNK_ADD
INSERT INTO stream_chunks (run, stream, first, writer, count, value) VALUES (?, ?, ?, ?, ?, ?)

-- name: STREAM_CHUNKS_FROM
SELECT first, writer, count, value FROM stream_chunks WHERE {in_stream} AND first >= :first
ORDER BY first

-- name: STREAM_CHUNKS_DROP
DELETE FROM stream_chunks WHERE {in_stream}

-- name: STREAM_CHUNK_DROP
DELETE FROM stream_chunks WHERE run = ? AND stream = ? AND first = ?

-- name: STREAM
-- One statement, so that bounds and values are of one moment.
SELECT start, stop, first, value FROM streams LEFT JOIN (
    SELECT first, value FROM stream_chunks
    WHERE {in_stream} AND first + count > :after AND first >= coalesce(
        (SELECT max(first) FROM stream_chunks WHERE {in_stream} AND first <= :after), 0)
    ORDER BY first LIMIT :limit
) ON TRUE
WHERE run = :run AND name = :stream ORDER BY first

-- name: UNENDED
SELECT pk FROM runs
WHERE pk IN (SELECT value FROM json_each(?))
    AND status NOT IN ('done', 'failed', 'cancelled', 'dead')

-- name: STREAMS
SELECT name, start, stop FROM streams WHERE run = ? ORDER BY name

-- name: STREAM_PARTS
SELECT stream, writer, length FROM stream_parts WHERE run = ? ORDER BY stream, writer

-- name: STREAM_PART_VALUES
SELECT length, value FROM stream_parts AS part LEFT JOIN stream_chunks AS chunk
    ON chunk.run = part.run AND chunk.stream = part.stream AND chunk.first >= part.first
    AND chunk.writer = part.writer
WHERE part.run = :run AND part.stream = :stream AND part.writer = :writer ORDER BY chunk.first

-- name: PRUNE_STREAMS
DELETE FROM streams WHERE run = ?

-- name: PRUNE_STREAM_PARTS
DELETE FROM stream_parts WHERE run = ?

-- name: PRUNE_STREAM_CHUNKS
DELETE FROM stream_chunks WHERE run = ?
