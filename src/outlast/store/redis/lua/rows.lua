-- Load and change the rows of runs. Most commands use it; the fast paths do without it.
--
-- A row is a Lua table. Numbers are numbers and a missing field is nil, but a missing count is 0.
-- A field is converted when it is first read, and changed only by `S.put`.
--
-- Fields that only the scripts use:
--   last: the seq of the last entry of the journal
--   got: the fence of the last execution that made progress
--   dealt: the journal has an intent, a compensation or a child
--   mail: the number of messages

local COUNTS = {
    fence = 0, deaths = 0, interruptions = 0, lives = 0, ready = 0, mark = 0, deaths_in_a_row = 0,
    interruptions_in_a_row = 0, failures = 0, last = 0, got = 0, mail = 0,
}
local NUMBERS = {
    priority = true, created = true, started = true, due = true, timeout = true, deadline = true,
    ended = true, interrupted = true, failed_at = true, attempts_max = true,
    interruptions_max = true, abandon_after = true, left_at = true, claimed = true,
    claimed_pid = true, released = true, turn = true,
}

-- The fields that determine in which sorted sets a run is (run_indexes.lua).
local INDEXED = {
    status = true, priority = true, worker = true, token = true, ready = true, due = true, ended = true,
    interrupted = true, deaths_in_a_row = true, undoing = true, turn = true, started = true,
}

-- Return whether a run with this many deaths in a row is a suspect.
function S.is_suspect(in_a_row)
    return in_a_row >= S.SUSPECT_DEATHS
end

S.ENDED = {done = true, failed = true, cancelled = true, dead = true}

-- The fields that Record needs.
local RECORD_FIELDS = {'fence', 'last', 'mark', 'got', 'dealt'}

local text = S.text

-- pk -> false if there is no such run, or its buffer:
--   row: the row; row.buffer refers back
--   raw: field -> stored text
--   old: field -> stored text of a changed field; false: it was absent
--   past: the values of `old` before earlier flushes of this call
--   flat: the whole hash as it was read (name, value, ...)
--   is_part: only some fields were read
--   moved: a field of INDEXED has changed; deleted: the run is deleted
local rows = {}
local dirty = {}  -- the subset that has changes to write

local function typed(row, field, value)
    if value == '' and (field == 'worker' or field == 'turn') then  -- cheaper than HDEL
        return nil
    end
    if value and (COUNTS[field] or NUMBERS[field]) then
        return tonumber(value) or error('run ' .. row.pk .. ': ' .. field .. ' is not a number')
    end
    return value or COUNTS[field]
end

local CONVERTING = {__index = function(row, field)
    local value = typed(row, field, row.buffer.raw[field])
    rawset(row, field, value)
    return value
end}

local function add(pk, raw)
    local buffer = {raw = raw, old = {}}
    buffer.row = setmetatable({pk = pk, buffer = buffer}, CONVERTING)
    rows[pk] = buffer
    return buffer
end

-- Add the fields that were not read yet. Changed fields keep their new values.
local function complete(buffer, flat)
    local raw, old = buffer.raw, buffer.old
    for i = 1, #flat, 2 do
        if old[flat[i]] == nil then
            raw[flat[i]] = flat[i + 1]
        end
    end
    buffer.is_part, buffer.flat = nil, flat
end

-- Return the row of a run; nil if there is none. `pk` is a text.
function S.row(pk)
    local buffer = rows[pk]
    if buffer == nil or (buffer and buffer.is_part) then
        S.flush_run(pk)
        local flat = call('HGETALL', P .. 'run:' .. pk)
        if #flat == 0 then
            rows[pk] = false
            return nil
        end
        buffer = buffer or add(pk, {})
        complete(buffer, flat)
    end
    return buffer and buffer.row
end

-- Return a row with these fields, by default those that Record needs, or the whole row if it is
-- loaded. The first field must be one that every row has.
function S.row_part(pk, fields)
    local buffer = rows[pk]
    if buffer and buffer.is_part and fields then  -- its fields may be different ones
        return S.row(pk)
    end
    if buffer == nil then
        S.flush_run(pk)
        fields = fields or RECORD_FIELDS
        local values = call('HMGET', P .. 'run:' .. pk, unpack(fields))
        if not values[1] then
            rows[pk] = false
            return nil
        end
        local raw = {}
        for i, field in ipairs(fields) do
            raw[field] = values[i] or nil
        end
        buffer = add(pk, raw)
        buffer.is_part = true
    end
    return buffer and buffer.row
end

-- Return whether a run is loaded, as a whole or in part.
function S.is_loaded(pk)
    return rows[pk] ~= nil
end

-- Set a field of a row; nil deletes it.
function S.put(row, field, value)
    local buffer = row.buffer
    if row[field] == value then
        return
    end
    if buffer.old[field] == nil then
        buffer.old[field] = buffer.raw[field] or false
    end
    if value == nil then
        buffer.raw[field] = nil
    end
    rawset(row, field, value)
    dirty[row.pk] = buffer
    if INDEXED[field] then
        buffer.moved = true
    end
end

-- Return the row if this fence holds the run; nil otherwise.
function S.held_row(run, fence)
    local row = S.row(run)
    return row and fence > 0 and row.fence == fence and row or nil
end

function S.set_status(row, status)
    S.count_status_change(row.queue, row.parent, row.status, status)
    S.put(row, 'status', status)
end

local PARTS_OF_RUN = {
    'journal:', 'dones:', 'done:', 'asked:', 'executions:', 'mail:', 'mailed:', 'progress:', 'run:',
}

-- Delete a run and everything that belongs to it alone. The set of its children stays: they count
-- again as children if a run is submitted under the same id.
function S.delete_run(row)
    for _, part in ipairs(PARTS_OF_RUN) do
        S.delete_key(P .. part .. row.pk)
    end
    S.delete_streams(row.pk)
    S.hset(P .. 'ids', row.id, nil)
    S.zrem(P .. 'run_ids', 0, row.id)
    S.count_status_change(row.queue, row.parent, row.status, nil)
    S.put(row, 'status', nil)
    row.buffer.deleted = true
end

local function stored_value(row, field)
    local old = row.buffer.old[field]
    if old == nil then
        return row[field]
    end
    return typed(row, field, old or nil)
end

local function current_value(row, field)
    return row[field]
end

-- Update the rate of ended runs if the end time of a run has changed. A deleted run stays counted.
local function count_end(row, before, after)
    if before ~= after then
        if before and not row.buffer.deleted then
            S.count_event(row.queue, 'e', before, -1)
        end
        if after and not row.buffer.deleted then
            S.count_event(row.queue, 'e', after)
        end
    end
end

-- Move the changed runs to the sorted sets where they belong now.
function S.update_indexes()
    for _, buffer in pairs(dirty) do
        local row = buffer.row
        if buffer.moved and row.key and not buffer.deleted then
            S.apply_key_rules(row, stored_value)
        end
        if buffer.moved then
            S.index_run(S.zrem, row, stored_value)
            count_end(row, stored_value(row, 'ended'), row.ended)
            S.index_run(S.zadd, row, current_value)
            buffer.moved = nil
        end
        if buffer.deleted and row.parent then
            S.zrem(P .. 'children:' .. row.parent, row.pk, row.pk)
        end
    end
end

local function as_text(value)
    return type(value) == 'number' and text(value) or value
end

local function flush_changes(buffer)
    local set, unset, reset, absent = {}, {}, {}, {}
    for field, before in pairs(buffer.old) do
        local now = as_text(rawget(buffer.row, field)) or (field == 'worker' and '') or false
        if now ~= before then
            if now then
                set[#set + 1], set[#set + 2] = field, now
            else
                unset[#unset + 1] = field
            end
            if before then
                reset[#reset + 1], reset[#reset + 2] = field, before
            else
                absent[#absent + 1] = field
            end
            buffer.raw[field] = now or nil
        end
    end
    buffer.past = buffer.past or {}
    buffer.past[#buffer.past + 1], buffer.old = buffer.old, {}
    S.write_fields(P .. 'run:' .. buffer.row.pk, set, unset, reset, absent)
end

function S.flush_rows()
    for pk, buffer in pairs(dirty) do
        if buffer.deleted then
            rows[pk] = false
        else
            flush_changes(buffer)
        end
    end
    dirty = {}
end

-- Encode a row for the answer: a JSON list of names and texts. If a name occurs twice, the later
-- text counts.
function S.encode_row(row)
    local buffer = row.buffer
    local flat = {unpack(buffer.flat)}  -- a copy: the row may change again in this call
    flat[#flat + 1], flat[#flat + 2] = 'pk', row.pk
    local function add_changed(fields)
        for field in pairs(fields) do
            flat[#flat + 1], flat[#flat + 2] = field, as_text(rawget(row, field)) or cjson.null
        end
    end
    for _, past in ipairs(buffer.past or {}) do
        add_changed(past)
    end
    add_changed(buffer.old)
    return cjson.encode(flat)
end
