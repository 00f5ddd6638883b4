-- Let the runs of each key take turns: see keys.py.

-- name: KEY_RULE
-- Whatever makes a run with a key ready only puts it among those that take turns. The key is
-- reviewed then, and when one of its runs stops executing or gives up its turn.
-- The trigger is not part of the schema: it makes each claim and settle copy the pages that it
-- changes, and a store without keys shall not pay for that.
CREATE TRIGGER IF NOT EXISTS runs_key_changed AFTER UPDATE OF status, ready ON runs
WHEN NEW.key IS NOT NULL AND (
    (NEW.ready > 0 AND NEW.turn IS NULL AND NEW.undoing IS NULL)
    OR (OLD.status = 'running' AND NEW.status <> 'running')
    OR (OLD.ready <> 0 AND NEW.ready = 0 AND NEW.status <> 'running')
    OR (OLD.undoing IS NULL AND NEW.undoing IS NOT NULL))
BEGIN
    UPDATE runs SET ready = CASE WHEN ready = 2 THEN -2 WHEN started IS NULL THEN -3 ELSE -1 END
        WHERE pk = NEW.pk AND ready > 0 AND turn IS NULL AND undoing IS NULL;
    UPDATE runs SET turn = NULL WHERE pk = NEW.pk AND ready = 0 AND turn IS NOT NULL;
    INSERT INTO key_changes (queue, key, at) VALUES (NEW.queue, NEW.key, 0)
    ON CONFLICT (queue, key) DO UPDATE SET at = 0;
END

-- name: KEY_CHANGES
SELECT queue, key FROM key_changes WHERE queue = ? AND at <= ? ORDER BY at LIMIT 1000

-- name: NEXT_KEY_CHANGE
SELECT min(at) FROM key_changes WHERE queue = ?

-- name: KEY_REVIEWED
DELETE FROM key_changes WHERE queue = ? AND key = ?

-- name: KEY_REVIEW_AT
INSERT INTO key_changes (queue, key, at) VALUES (?, ?, ?)
ON CONFLICT (queue, key) DO UPDATE SET at = min(at, excluded.at)

-- name: KEY_RUNNING
SELECT count(*) FROM runs
WHERE key IS NOT NULL AND status = 'running' AND queue = ? AND key = ?

-- name: KEY_START
-- The start that must be a period ago before the next one.
SELECT started FROM runs WHERE key IS NOT NULL AND started IS NOT NULL AND queue = ? AND key = ?
ORDER BY started DESC LIMIT 1 OFFSET ?

-- name: held_back
CASE WHEN ready = 2 THEN -2 WHEN started IS NULL THEN -3 ELSE -1 END

-- name: KEY_HEADS
SELECT workflow, {held_back}, -priority, coalesce(interrupted + 0.0, 1e12), due + 0.0, pk FROM runs
WHERE key IS NOT NULL AND ready > 0 AND queue = ? AND key = ? AND undoing IS NULL

-- name: KEY_NEXT
-- The first run of the next lane.
SELECT workflow, ready, -priority, coalesce(interrupted + 0.0, 1e12), due + 0.0, pk
FROM runs INDEXED BY runs_gated
WHERE key IS NOT NULL AND ready < 0 AND queue = ? AND key = ? AND (workflow, ready) > (?, ?)
ORDER BY workflow, ready, priority DESC, interrupted IS NULL, interrupted, due, pk LIMIT 1

-- name: GIVE_TURN
UPDATE runs SET ready = CASE WHEN ready = -2 THEN 2 ELSE 1 END, turn = ? WHERE pk = ?

-- name: TAKE_TURN
UPDATE runs SET ready = {held_back}, turn = NULL WHERE pk = ?

-- name: KEYS_CHANGED
INSERT INTO key_changes (queue, key, at)
SELECT queue, key, 0 FROM runs WHERE key IS NOT NULL AND ready < 0 AND queue = :queue
UNION SELECT queue, key, 0 FROM runs WHERE key IS NOT NULL AND ready > 0 AND queue = :queue
-- for SQLite's parser, which would take ON for a part of a join
ORDER BY 1, 2
ON CONFLICT (queue, key) DO UPDATE SET at = 0
