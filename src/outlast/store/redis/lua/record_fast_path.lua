-- Entries of runs whose rows are not in the view. Most calls have nothing else, and it costs a third of what a row in the view does.

local CHUNK = S.CHUNK

local runs = {}     -- pk -> {fence, last, mark, got, dealt, seq, text, seq, text, ...}; `last` is a number
local first = {}    -- pk -> the number of the first of its new entries
local got = {}      -- pk -> the fence under which it had last got somewhere; false: none
local deals = {}    -- pk -> true: it deals with the outside from now on
local dones = {}    -- pk -> {seq, text, key, ...}

-- Whether this fence has recorded this seq.
local function is_repeat(run, seq, fence)
    S.flush_run(run)
    local text = call('HGET', P .. 'journal:' .. run, seq) or call('HGET', P .. 'dones:' .. run, seq)
    return text and text:match('^%S+') == fence
end

local function append(it, run, seq, number, fence, marks, key, text)
    it[2] = number
    first[run] = first[run] or number
    if it[4] ~= fence and marks:byte(1) == 112 and number > (tonumber(it[3]) or 0) then
        got[run], it[4] = it[4], fence
    end
    if marks == 'pd' then
        local flat = dones[run] or {}
        local size = #flat
        dones[run] = flat
        flat[size + 1], flat[size + 2], flat[size + 3] = seq, text, key
        return
    end
    if not it[5] and (marks == 'pi' or marks == 'i') then
        deals[run], it[5] = true, '1'
    end
    local size = #it
    it[size + 1], it[size + 2] = seq, text
end

-- `marks`: p for progress, i for a dealing with the outside, d for `done`, whose key is looked up. The entry must follow the last one: a
-- hole would mean that the server has lost something which the life still goes by.
function S.record(run, seq, fence, marks, key, text)
    local knows = rawget(S, 'is_loaded')
    if knows and knows(run) then
        return S.record_loaded(run, seq, fence, marks, key, text)
    end
    local it = runs[run]
    if not it then
        S.flush_run(run)
        it = call('HMGET', P .. 'run:' .. run, 'fence', 'last', 'mark', 'got', 'dealt')
        it[2] = tonumber(it[2]) or 0
        runs[run] = it
    end
    local number = tonumber(seq)
    if it[1] == fence and tonumber(fence) > 0 and number == it[2] + 1 then
        append(it, run, seq, number, fence, marks, key, text)
        return false
    end
    return not is_repeat(run, seq, fence) and {'!', 'fence', ''}
end

local function no_entries(try, run, it)
    for i = 6, #it, 2 do
        try('HDEL', P .. 'journal:' .. run, it[i])
    end
end

local function no_dones(try, run, flat)
    for i = 1, #flat, 3 do
        try('HDEL', P .. 'dones:' .. run, flat[i])
    end
end

local function fields_before(try, key, before)
    for i = 1, #before, 2 do
        if before[i + 1] then
            try('HSET', key, before[i], before[i + 1])
        else
            try('HDEL', key, before[i])
        end
    end
end

local function last_before(try, run, number)
    if number > 1 then
        try('HSET', P .. 'run:' .. run, 'last', S.text(number - 1))
    else
        try('HDEL', P .. 'run:' .. run, 'last')
    end
end

local function write_dones(run, flat)
    local key = P .. 'done:' .. run
    for i = 1, #flat, 3 do
        local before = {flat[i + 2], call('HGET', key, flat[i + 2])}
        call('HSET', P .. 'dones:' .. run, flat[i], flat[i + 1])
        if i == 1 then
            S.on_rollback(no_dones, run, flat)
        end
        call('HSET', key, flat[i + 2], flat[i])
        S.on_rollback(fields_before, key, before)
    end
end

local function write(run, it)
    for start = 6, #it, CHUNK do
        call('HSET', P .. 'journal:' .. run, unpack(it, start, math.min(start + CHUNK - 1, #it)))
        if start == 6 then
            S.on_rollback(no_entries, run, it)
        end
    end
    if dones[run] then
        write_dones(run, dones[run])
        dones[run] = nil
    end
    local key = P .. 'run:' .. run
    if got[run] ~= nil then
        call('HSET', key, 'last', S.text(it[2]), 'got', it[4])
        S.on_rollback(fields_before, key, {'got', got[run]})
        got[run] = nil
    else
        call('HSET', key, 'last', S.text(it[2]))
    end
    S.on_rollback(last_before, run, first[run])
    if deals[run] then
        S.write({'HDEL', key, 'dealt'}, 'HSET', key, 'dealt', '1')
        deals[run] = nil
    end
    first[run] = nil
end

function S.flush_entries_of(run)
    local it = runs[run]
    if it then
        runs[run] = nil
        if first[run] then
            write(run, it)
        end
    end
end

function S.flush_entries()
    for run, it in pairs(runs) do
        if first[run] then
            write(run, it)
        end
    end
    runs = {}
end
