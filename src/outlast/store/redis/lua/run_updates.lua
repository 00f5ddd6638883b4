-- Hold one pending update per run that is not loaded: an inserted run, or a run that a fast path
-- changes. Code that needs the whole row of such a run writes the update first (`S.flush_run`).

-- pk -> {set, first, last, unset, revert, before}: set the names and values at first..last of the
-- list `set`, unset the names in `unset`; to revert, call revert(try, key, before)
local updates = {}

-- Return whether a fast path may handle the run, that is, whether its row is not loaded. If so,
-- write its pending changes, so that its fields can be read.
function S.use_fast_path(pk)
    local is_loaded = rawget(S, 'is_loaded')
    if is_loaded and is_loaded(pk) then
        return false
    end
    S.flush_run(pk)
    return true
end

-- Return the fields of a run with these names, in this order. The run must not be loaded.
function S.read_run_fields(pk, names)
    return call('HMGET', P .. 'run:' .. pk, unpack(names))
end

-- Set the fields in `set` (name, value, ...) and unset those in `unset` (names). The run must not
-- be loaded. A rollback calls `revert` with the key and `before`.
function S.update_run(pk, revert, before, set, unset)
    updates[pk] = {set, 1, #set, unset, revert, before}
end

-- Set the fields at first..last of `flat`. What precedes them is the row as it was read.
function S.update_run_from_tail(pk, revert, flat, first, last)
    updates[pk] = {flat, first, last, nil, revert, {flat, first - 1}}
end

local function write(pk, update)
    local key, unset = P .. 'run:' .. pk, update[4]
    if unset and #unset > 0 then
        call('HDEL', key, unpack(unset))
        S.on_rollback(update[5], key, update[6])
    end
    call('HSET', key, unpack(update[1], update[2], update[3]))
    S.on_rollback(update[5], key, update[6])
end

-- Write the pending update of one run, if there is one.
function S.flush_update_of(pk)
    local update = updates[pk]
    if update then
        updates[pk] = nil
        write(pk, update)
    end
end

function S.flush_updates()
    for pk, update in pairs(updates) do
        write(pk, update)
    end
    updates = {}
end
