-- Changes of runs whose rows are not in the view, and new ones. Whoever needs such a run whole has it written first.

local changed = {}  -- pk -> {what to set, from where to where in that, what to unset, what takes it back, and what that takes}

-- Whether the run's row can be had here. What is to be written of it is, so that it can be read.
function S.use_fast_path(pk)
    local knows = rawget(S, 'is_loaded')
    if knows and knows(pk) then
        return false
    end
    S.flush_run(pk)
    return true
end

-- Some fields of a run, in the order of their names. The run must be free.
function S.read_run_fields(pk, names)
    return call('HMGET', P .. 'run:' .. pk, unpack(names))
end

-- Set these fields of a run, names and values one after the other, and unset those. The run must be free. To take it back,
-- `take_back` is called with the key and `before`.
function S.update_run(pk, take_back, before, set, unset)
    changed[pk] = {set, 1, #set, unset, take_back, before}
end

-- The same, where what to set stands in a list behind what there was.
function S.update_run_from_tail(pk, take_back, flat, from, to)
    changed[pk] = {flat, from, to, nil, take_back, {flat, from - 1}}
end

local function write(pk, it)
    local key, unset = P .. 'run:' .. pk, it[4]
    if unset and #unset > 0 then
        call('HDEL', key, unpack(unset))
        S.on_rollback(it[5], key, it[6])
    end
    call('HSET', key, unpack(it[1], it[2], it[3]))
    S.on_rollback(it[5], key, it[6])
end

function S.flush_update_of(pk)
    local it = changed[pk]
    if it then
        changed[pk] = nil
        write(pk, it)
    end
end

function S.flush_updates()
    for pk, it in pairs(changed) do
        write(pk, it)
    end
    changed = {}
end
