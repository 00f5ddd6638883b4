-- Lists, and keys that go, whatever they are: the rest of the view.

local CHUNK = S.CHUNK

local lists = {}  -- key -> {{values} or a count, ...}
local drops = {}  -- keys, in order
local last = {}   -- commands for the end
local counts = {} -- key -> how many items it has, where that was asked

-- How many items a list has, with those that are to be written.
function S.list_length(key)
    local count = counts[key]
    if not count then
        count = call('LLEN', key)
        for _, op in ipairs(lists[key] or {}) do
            count = type(op) == 'table' and count + #op or math.min(count, op)
        end
        counts[key] = count
    end
    return count
end

function S.append_item(key, value)
    counts[key] = counts[key] and counts[key] + 1
    local ops = lists[key] or {}
    lists[key] = ops
    local newest = ops[#ops]
    if type(newest) == 'table' and #newest < CHUNK then
        newest[#newest + 1] = value
    else
        ops[#ops + 1] = {value}
    end
end

-- Only the newest so many items of a list stay.
function S.truncate(key, count)
    counts[key] = counts[key] and math.min(counts[key], count)
    local ops = lists[key] or {}
    lists[key] = ops
    ops[#ops + 1] = count
end

-- A key goes, whatever it is and whatever of it is in the view.
function S.delete_key(key)
    lists[key], counts[key] = nil, 0
    drops[#drops + 1] = key
    S.forget_hash(key)
    S.call_if_defined('forget_set', key)
end

function S.flush_deletes()
    for _, key in ipairs(drops) do
        if call('EXISTS', key) == 1 then
            -- Renaming can be taken back, and frees nothing yet.
            local grave = P .. 'grave:' .. #last
            S.write({'RENAME', grave, key}, 'RENAME', key, grave)
            last[#last + 1] = {'UNLINK', grave}
        end
    end
    drops = {}
end

local function flush_list(key, ops)
    for _, op in ipairs(ops) do
        if type(op) == 'table' then
            S.write({'LTRIM', key, 0, -#op - 1}, 'RPUSH', key, unpack(op))
        else
            local too_many = call('LLEN', key) - op
            while too_many > 0 do
                local count = math.min(too_many, CHUNK)
                local old, back = call('LRANGE', key, 0, count - 1), {}
                for i = #old, 1, -1 do
                    back[#back + 1] = old[i]
                end
                S.write({'LPUSH', key, unpack(back)}, 'LTRIM', key, count, -1)
                too_many = too_many - count
            end
        end
    end
end

-- Write what is to be written of a list, so that it can be read.
local function settle(key)
    S.flush_deletes()
    flush_list(key, lists[key] or {})
    lists[key] = nil
end

-- The newest items, oldest first.
function S.last_items(key, count)
    settle(key)
    return call('LRANGE', key, -count, -1)
end

-- Remove the newest items.
function S.pop_items(key, count)
    settle(key)
    counts[key] = counts[key] and counts[key] - count
    while count > 0 do
        local some = math.min(count, CHUNK)
        local old = call('LRANGE', key, -some, -1)
        S.write({'RPUSH', key, unpack(old)}, 'LTRIM', key, 0, -some - 1)
        count = count - some
    end
end

-- Replace the item at this place, which there is.
function S.replace_item(key, at, value)
    settle(key)
    S.write({'LSET', key, at, call('LRANGE', key, at, at)[1]}, 'LSET', key, at, value)
end

function S.flush_lists()
    for key, ops in pairs(lists) do
        flush_list(key, ops)
    end
    lists = {}
end

-- What cannot be taken back, after all the rest.
function S.free_deleted_keys()
    for _, command in ipairs(last) do
        redis.pcall(unpack(command))
    end
end
