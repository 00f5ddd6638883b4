ALTER TABLE entries ADD COLUMN cost TEXT;                      -- what it has cost: a JSON object of numbers

ALTER TABLE runs ADD COLUMN undoing TEXT;                      -- how it ends once it is undone, as JSON; NULL: it is not being undone
ALTER TABLE runs ADD COLUMN abandon_after REAL;                -- seconds for which it may be claimable and not taken
