-- Rows of runs. A row is a Lua table; numbers are numbers, what is not there is nil (counts: 0). It is changed by `S.put` only.

local COUNTS = {
    fence = 0, deaths = 0, interruptions = 0, lives = 0, ready = 0, mark = 0, deaths_in_a_row = 0,
    interruptions_in_a_row = 0, failures = 0, last = 0, got = 0, mail = 0,
}
local NUMBERS = {
    priority = true, created = true, started = true, due = true, timeout = true, deadline = true, ended = true,
    interrupted = true, failed_at = true, attempts_max = true, interruptions_max = true, abandon_after = true, left_at = true,
    claimed = true, claimed_pid = true, released = true,
}

-- What says in which sorted sets a run is.
local PLACING = {
    status = true, worker = true, token = true, ready = true, due = true, ended = true, interrupted = true, deaths_in_a_row = true,
    undoing = true,
}

function S.is_suspect(in_a_row)
    return in_a_row >= S.SUSPECT_DEATHS
end

S.ENDED = {done = true, failed = true, cancelled = true, dead = true}

-- What Record goes by. `last`: the number of the last entry. `got`: the fence under which it last got somewhere. `dealt`: it has
-- an intent, a compensation or a child in its journal.
local LIGHT = {'fence', 'last', 'mark', 'got', 'dealt'}

local text = S.text
local rows, dirty = {}, {}  -- pk -> {row, raw (the texts that were read), old (of what was changed: the text, or false)}

local function typed(row, field, value)
    if value and (COUNTS[field] or NUMBERS[field]) then
        return tonumber(value) or error('run ' .. row.pk .. ': ' .. field .. ' is not a number')
    end
    if value == '' and field == 'worker' then  -- nobody: cheaper than to delete the field each time
        return nil
    end
    return value or COUNTS[field]
end

local READ = {__index = function(row, field)
    local value = typed(row, field, row.it.raw[field])
    rawset(row, field, value)
    return value
end}

local function found(pk, raw)
    local it = {raw = raw, old = {}}
    it.row = setmetatable({pk = pk, it = it}, READ)
    rows[pk] = it
    return it
end

local function fill(it, flat)
    local raw, old = it.raw, it.old
    for i = 1, #flat, 2 do
        if old[flat[i]] == nil then
            raw[flat[i]] = flat[i + 1]
        end
    end
    it.light, it.flat = nil, flat
end

-- The row of a run; nil if there is none. `pk` is a text.
function S.row(pk)
    local it = rows[pk]
    if it == nil or (it and it.light) then
        S.flush_run(pk)
        local flat = call('HGETALL', P .. 'run:' .. pk)
        if #flat == 0 then
            rows[pk] = false
            return nil
        end
        it = it or found(pk, {})
        fill(it, flat)
    end
    return it and it.row
end

-- The same, or only what Record needs of it, or these fields. The first is one that every row has.
function S.row_part(pk, fields)
    local it = rows[pk]
    if it and it.light and fields then  -- it may have been read with other ones
        return S.row(pk)
    end
    if it == nil then
        S.flush_run(pk)
        fields = fields or LIGHT
        local values = call('HMGET', P .. 'run:' .. pk, unpack(fields))
        if not values[1] then
            rows[pk] = false
            return nil
        end
        local raw = {}
        for i, field in ipairs(fields) do
            raw[field] = values[i] or nil
        end
        it = found(pk, raw)
        it.light = true
    end
    return it and it.row
end

-- Whether a run is in the view.
function S.is_loaded(pk)
    return rows[pk] ~= nil
end

function S.put(row, field, value)
    local it = row.it
    if row[field] == value then
        return
    end
    if it.old[field] == nil then
        it.old[field] = it.raw[field] or false
    end
    if value == nil then
        it.raw[field] = nil
    end
    rawset(row, field, value)
    dirty[row.pk] = it
    if PLACING[field] then
        it.moved = true
    end
end

-- The row if it has this fence, which is not void.
function S.held_row(run, fence)
    local row = S.row(run)
    return row and fence > 0 and row.fence == fence and row or nil
end

function S.set_status(row, status)
    S.count_status_change(row.queue, row.parent, row.status, status)
    S.put(row, 'status', status)
end

-- A run is gone, with all that is its own. (Its children keep its id: they still count if that is submitted again.)
function S.delete_run(row)
    for _, part in ipairs({'journal:', 'dones:', 'done:', 'asked:', 'executions:', 'mail:', 'mailed:', 'progress:', 'run:'}) do
        S.delete_key(P .. part .. row.pk)
    end
    S.hset(P .. 'ids', row.id, nil)
    S.count_status_change(row.queue, row.parent, row.status, nil)
    S.put(row, 'status', nil)
    row.it.gone = true
end

local function was(row, field)
    local old = row.it.old[field]
    if old == nil then
        return row[field]
    end
    return typed(row, field, old or nil)
end

local function is(row, field)
    return row[field]
end

local function count_end(row, before, after)
    if before ~= after then
        if before and not row.it.gone then
            S.count_event(row.queue, 'e', before, -1)
        end
        if after and not row.it.gone then
            S.count_event(row.queue, 'e', after)
        end
    end
end

-- Put rows where they belong now, and take them from where they were.
function S.update_indexes()
    for _, it in pairs(dirty) do
        local row = it.row
        if it.moved then
            S.index_run(S.zrem, row, was)
            count_end(row, was(row, 'ended'), row.ended)
            S.index_run(S.zadd, row, is)
            it.moved = nil
        end
        if it.gone and row.parent then
            S.zrem(P .. 'children:' .. row.parent, row.pk, row.pk)
        end
    end
end

local function as_text(value)
    return type(value) == 'number' and text(value) or value
end

local function flush_changed(it)
    local set, unset, reset, absent = {}, {}, {}, {}
    for field, before in pairs(it.old) do
        local now = as_text(rawget(it.row, field)) or (field == 'worker' and '') or false
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
            it.raw[field] = now or nil
        end
    end
    it.past = it.past or {}
    it.past[#it.past + 1], it.old = it.old, {}
    S.write_fields(P .. 'run:' .. it.row.pk, set, unset, reset, absent)
end

function S.flush_rows()
    for pk, it in pairs(dirty) do
        if it.gone then
            rows[pk] = false
        else
            flush_changed(it)
        end
    end
    dirty = {}
end

-- As it is sent: names and texts, one after the other, as JSON. What is said twice counts as it is said later.
function S.encode_row(row)
    local it = row.it
    local flat = {unpack(it.flat)}  -- as it is now: the row may change in the same call
    flat[#flat + 1], flat[#flat + 2] = 'pk', row.pk
    local function changed(fields)
        for field in pairs(fields) do
            flat[#flat + 1], flat[#flat + 2] = field, as_text(rawget(row, field)) or cjson.null
        end
    end
    for _, past in ipairs(it.past or {}) do
        changed(past)
    end
    changed(it.old)
    return cjson.encode(flat)
end
