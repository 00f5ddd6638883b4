-- Buffer writes to lists, and delete whole keys of any type. Used by commands that append to lists
-- (messages, executions, durations, session items) and by all that delete.

local CHUNK = S.CHUNK

local lists = {}    -- key -> operations: {values} to append, or the number of items to keep
local lengths = {}  -- key -> number of items including pending operations, once it was read
local deletes = {}  -- keys to delete, in order
local last = {}     -- commands to execute after everything that can fail

-- Return the number of items, including pending operations.
function S.list_length(key)
    local count = lengths[key]
    if not count then
        count = call('LLEN', key)
        for _, op in ipairs(lists[key] or {}) do
            count = type(op) == 'table' and count + #op or math.min(count, op)
        end
        lengths[key] = count
    end
    return count
end

function S.append_item(key, value)
    lengths[key] = lengths[key] and lengths[key] + 1
    local ops = lists[key] or {}
    lists[key] = ops
    local newest = ops[#ops]
    if type(newest) == 'table' and #newest < CHUNK then
        newest[#newest + 1] = value
    else
        ops[#ops + 1] = {value}
    end
end

-- Keep only the newest `count` items.
function S.truncate(key, count)
    lengths[key] = lengths[key] and math.min(lengths[key], count)
    local ops = lists[key] or {}
    lists[key] = ops
    ops[#ops + 1] = count
end

-- Delete a key of any type and discard its buffered changes.
function S.delete_key(key)
    lists[key], lengths[key] = nil, 0
    deletes[#deletes + 1] = key
    S.forget_hash(key)
    S.call_if_defined('forget_set', key)
end

-- Rename each key to delete. Renaming can be reverted; the memory is freed at the end.
function S.flush_deletes()
    for _, key in ipairs(deletes) do
        if call('EXISTS', key) == 1 then
            local grave = P .. 'grave:' .. #last
            S.write({'RENAME', grave, key}, 'RENAME', key, grave)
            last[#last + 1] = {'UNLINK', grave}
        end
    end
    deletes = {}
end

-- Remove the oldest items until `length` are left.
local function remove_oldest(key, length)
    local excess = call('LLEN', key) - length
    while excess > 0 do
        local count = math.min(excess, CHUNK)
        local old, reversed = call('LRANGE', key, 0, count - 1), {}
        for i = #old, 1, -1 do
            reversed[#reversed + 1] = old[i]
        end
        S.write({'LPUSH', key, unpack(reversed)}, 'LTRIM', key, count, -1)
        excess = excess - count
    end
end

local function flush_list(key, ops)
    for _, op in ipairs(ops) do
        if type(op) == 'table' then
            S.write({'LTRIM', key, 0, -#op - 1}, 'RPUSH', key, unpack(op))
        else
            remove_oldest(key, op)
        end
    end
end

-- Write the pending operations of one list, so that Redis commands see its current items.
local function flush_one(key)
    S.flush_deletes()
    flush_list(key, lists[key] or {})
    lists[key] = nil
end

-- Return the newest `count` items, oldest first.
function S.last_items(key, count)
    flush_one(key)
    return call('LRANGE', key, -count, -1)
end

-- Remove the newest `count` items.
function S.pop_items(key, count)
    flush_one(key)
    lengths[key] = lengths[key] and lengths[key] - count
    while count > 0 do
        local some = math.min(count, CHUNK)
        local old = call('LRANGE', key, -some, -1)
        S.write({'RPUSH', key, unpack(old)}, 'LTRIM', key, 0, -some - 1)
        count = count - some
    end
end

-- Replace the item at this index, which must exist.
function S.replace_item(key, at, value)
    flush_one(key)
    S.write({'LSET', key, at, call('LRANGE', key, at, at)[1]}, 'LSET', key, at, value)
end

function S.flush_lists()
    for key, ops in pairs(lists) do
        flush_list(key, ops)
    end
    lists = {}
end

-- Free the memory of deleted keys. This cannot be reverted, so commit.lua calls it last.
function S.free_deleted_keys()
    for _, command in ipairs(last) do
        redis.pcall(unpack(command))
    end
end
