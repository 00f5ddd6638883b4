-- Record for runs that are not loaded. Most calls contain nothing else, and this costs a third of
-- loading the row. The record script consists of this file, core.lua and rollback.lua.
--
-- An entry is a text: the fence that wrote it, a space, and JSON that only Python reads. Entries
-- of the kind `done` are in the hash `dones:<pk>`, all others in `journal:<pk>`. Both have the seq
-- as field. `done:<pk>` has the seq of each `done` entry by its key.

local CHUNK = S.CHUNK

-- pk -> {fence, last, mark, got, dealt, seq, text, seq, text, ...}: the fields of the run, then its
-- new entries. `last` is a number.
local runs = {}
local FENCE, LAST, MARK, GOT, DEALT, ENTRIES = 1, 2, 3, 4, 5, 6

local first_seqs = {}  -- pk -> the seq of its first new entry
local old_got = {}     -- pk -> the stored value of `got` if it has changed; false: there was none
local new_dealt = {}   -- pk -> true if `dealt` must be set
local dones = {}       -- pk -> {seq, text, key, ...}: its new `done` entries

-- Return whether this fence has already recorded this seq.
local function is_repeat(run, seq, fence)
    S.flush_run(run)
    local text = call('HGET', P .. 'journal:' .. run, seq)
        or call('HGET', P .. 'dones:' .. run, seq)
    return text and text:match('^%S+') == fence
end

local function append(fields, run, seq, number, fence, marks, key, text)
    fields[LAST] = number
    first_seqs[run] = first_seqs[run] or number
    local is_progress = marks:byte(1) == 112  -- 'p'
    if fields[GOT] ~= fence and is_progress and number > (tonumber(fields[MARK]) or 0) then
        old_got[run], fields[GOT] = fields[GOT], fence
    end
    if marks == 'pd' then
        local flat = dones[run] or {}
        local size = #flat
        dones[run] = flat
        flat[size + 1], flat[size + 2], flat[size + 3] = seq, text, key
        return
    end
    if not fields[DEALT] and (marks == 'pi' or marks == 'i') then
        new_dealt[run], fields[DEALT] = true, '1'
    end
    local size = #fields
    fields[size + 1], fields[size + 2] = seq, text
end

-- Record an entry. `marks` has p if the entry is progress, i if it is an intent, a compensation or
-- a child, and d if it is `done` and can be looked up by its key. The entry must follow the last
-- one: a gap would mean that the server has lost entries that the execution relies on.
function S.record(run, seq, fence, marks, key, text)
    local is_loaded = rawget(S, 'is_loaded')
    if is_loaded and is_loaded(run) then
        return S.record_loaded(run, seq, fence, marks, key, text)
    end
    local fields = runs[run]
    if not fields then
        S.flush_run(run)
        fields = call('HMGET', P .. 'run:' .. run, 'fence', 'last', 'mark', 'got', 'dealt')
        fields[LAST] = tonumber(fields[LAST]) or 0
        runs[run] = fields
    end
    local number = tonumber(seq)
    if fields[FENCE] == fence and tonumber(fence) > 0 and number == fields[LAST] + 1 then
        append(fields, run, seq, number, fence, marks, key, text)
        return false
    end
    return not is_repeat(run, seq, fence) and {'!', 'fence', ''}
end

local function revert_entries(try, run, fields)
    for i = ENTRIES, #fields, 2 do
        try('HDEL', P .. 'journal:' .. run, fields[i])
    end
end

local function revert_dones(try, run, flat)
    for i = 1, #flat, 3 do
        try('HDEL', P .. 'dones:' .. run, flat[i])
    end
end

local function revert_fields(try, key, before)
    for i = 1, #before, 2 do
        if before[i + 1] then
            try('HSET', key, before[i], before[i + 1])
        else
            try('HDEL', key, before[i])
        end
    end
end

local function revert_last(try, run, first_seq)
    if first_seq > 1 then
        try('HSET', P .. 'run:' .. run, 'last', S.text(first_seq - 1))
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
            S.on_rollback(revert_dones, run, flat)
        end
        call('HSET', key, flat[i + 2], flat[i])
        S.on_rollback(revert_fields, key, before)
    end
end

-- Write the new entries of a run, and the fields that they change.
local function write(run, fields)
    for start = ENTRIES, #fields, CHUNK do
        local stop = math.min(start + CHUNK - 1, #fields)
        call('HSET', P .. 'journal:' .. run, unpack(fields, start, stop))
        if start == ENTRIES then
            S.on_rollback(revert_entries, run, fields)
        end
    end
    if dones[run] then
        write_dones(run, dones[run])
        dones[run] = nil
    end
    local key = P .. 'run:' .. run
    if old_got[run] ~= nil then
        call('HSET', key, 'last', S.text(fields[LAST]), 'got', fields[GOT])
        S.on_rollback(revert_fields, key, {'got', old_got[run]})
        old_got[run] = nil
    else
        call('HSET', key, 'last', S.text(fields[LAST]))
    end
    S.on_rollback(revert_last, run, first_seqs[run])
    if new_dealt[run] then
        S.write({'HDEL', key, 'dealt'}, 'HSET', key, 'dealt', '1')
        new_dealt[run] = nil
    end
    first_seqs[run] = nil
end

-- Write the pending entries of one run. The next Record reads its fields again.
function S.flush_entries_of(run)
    local fields = runs[run]
    if fields then
        runs[run] = nil
        if first_seqs[run] then
            write(run, fields)
        end
    end
end

function S.flush_entries()
    for run, fields in pairs(runs) do
        if first_seqs[run] then
            write(run, fields)
        end
    end
    runs = {}
end
