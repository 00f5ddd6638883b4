-- New rows, and changes of a few fields of runs whose rows are not in the view. Whoever needs such a run whole has it written first.

local changed = {}  -- pk -> {names, their values before, what to set, what to unset}
local fresh = {}    -- pk -> its fields

-- Whether the run's row can be had here. What is to be written of it is, so that it can be read.
function S.is_free(pk)
    local knows = rawget(S, 'knows')
    if knows and knows(pk) then
        return false
    end
    S.write_pending(pk)
    return true
end

-- Some fields of a run, in the order of their names. The run must be free.
function S.read(pk, names)
    return call('HMGET', P .. 'run:' .. pk, unpack(names))
end

-- Set and unset fields of a run that was read so, and no others than were read.
function S.change(pk, names, before, set, unset)
    changed[pk] = {names, before, set, unset}
end

local function values_before(try, key, it)
    for i, name in ipairs(it[1]) do
        if it[2][i] then
            try('HSET', key, name, it[2][i])
        else
            try('HDEL', key, name)
        end
    end
end

-- The same, of a run that was read whole: `before` is its names and values up to a number, and what is new behind.
function S.change_whole(pk, before, number)
    changed[pk] = {false, before, number}
end

local function row_before(try, key, it)
    try('DEL', key)
    try('HSET', key, unpack(it[2], 1, it[3]))
end

local function write_change(pk, it)
    local key = P .. 'run:' .. pk
    if not it[1] then
        call('HSET', key, unpack(it[2], it[3] + 1))
        S.wrote(row_before, key, it)
        return
    end
    if it[4] and #it[4] > 0 then
        call('HDEL', key, unpack(it[4]))
        S.wrote(values_before, key, it)
    end
    call('HSET', key, unpack(it[3]))
    S.wrote(values_before, key, it)
end

function S.put_fresh(pk, flat)
    fresh[pk] = flat
end

local function write_fresh(pk, flat)
    local key = P .. 'run:' .. pk
    S.write({'UNLINK', key}, 'HSET', key, unpack(flat))
end

function S.write_changes(pk)
    if changed[pk] then
        write_change(pk, changed[pk])
        changed[pk] = nil
    end
    if fresh[pk] then
        write_fresh(pk, fresh[pk])
        fresh[pk] = nil
    end
end

function S.write_all_changes()
    for pk, it in pairs(changed) do
        write_change(pk, it)
    end
    for pk, flat in pairs(fresh) do
        write_fresh(pk, flat)
    end
    changed, fresh = {}, {}
end
