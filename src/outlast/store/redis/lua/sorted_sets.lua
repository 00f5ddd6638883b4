-- Buffer writes to sorted sets. There are no buffered reads: code that reads a sorted set calls
-- `S.flush` first.

local CHUNK, text = S.CHUNK, S.text

-- key -> {was, now}: the scores of changed members before and after, as numbers or texts
local sets = {}
local flushing = {}   -- the same, between the two halves of a flush
local directory = {}  -- key -> {set, member}: the plain set that lists the key if it is not empty

local function buffered(key, listed_in, as)
    local set = {was = {}, now = {}}
    sets[key] = set
    directory[key] = listed_in and {listed_in, as} or nil
    return set
end

-- Add a member. It must be absent, or removed earlier in this call. While the sorted set is not
-- empty, the set `listed_in` contains `as`.
function S.zadd(key, score, member, listed_in, as)
    local set = sets[key] or buffered(key, listed_in, as)
    set.now[member] = score
end

-- Remove a member. It must be present with this score, or added earlier in this call.
function S.zrem(key, score, member, listed_in, as)
    local set = sets[key] or buffered(key, listed_in, as)
    if set.now[member] ~= nil then
        set.now[member] = nil
    elseif set.was[member] == nil then
        set.was[member] = score
    end
end

-- Discard the buffered changes of a sorted set. `S.delete_key` deletes the key.
function S.forget_set(key)
    sets[key], directory[key] = nil, nil
end

local function as_text(score)
    return type(score) == 'number' and text(score) or score
end

local function revert_removal(try, key, set)
    for member, score in pairs(set.was) do
        try('ZADD', key, as_text(score), member)
    end
end

local function revert_addition(try, key, set)
    for member in pairs(set.now) do
        if set.was[member] == nil then
            try('ZREM', key, member)
        else
            try('ZADD', key, as_text(set.was[member]), member)
        end
    end
end

-- Execute a command for all members, in chunks. If the key is not a sorted set, the first chunk
-- fails; later ones cannot.
local function write(name, key, members, revert, set)
    for start = 1, #members, CHUNK do
        call(name, key, unpack(members, start, math.min(start + CHUNK - 1, #members)))
        if start == 1 then
            S.on_rollback(revert, key, set)
        end
    end
end

-- Write the removals. This is the first half of a flush, because it frees memory.
function S.flush_removed_members()
    flushing, sets = sets, {}
    for key, set in pairs(flushing) do
        local now, members, size = set.now, {}, 0
        for member in pairs(set.was) do
            if now[member] == nil then
                size = size + 1
                members[size] = member
            end
        end
        write('ZREM', key, members, revert_removal, set)
    end
end

local function update_directory()
    for key, entry in pairs(directory) do
        local empty = call('EXISTS', key) == 0
        if empty ~= (call('SISMEMBER', entry[1], entry[2]) == 0) then
            if empty then
                S.write({'SADD', entry[1], entry[2]}, 'SREM', entry[1], entry[2])
            else
                S.write({'SREM', entry[1], entry[2]}, 'SADD', entry[1], entry[2])
            end
        end
    end
    directory = {}
end

-- Write the additions and the changed scores. This is the second half of a flush.
function S.flush_added_members()
    for key, set in pairs(flushing) do
        local was, members, size = set.was, {}, 0
        for member, score in pairs(set.now) do
            if was[member] ~= score then
                members[size + 1], members[size + 2] = as_text(score), member
                size = size + 2
            end
        end
        write('ZADD', key, members, revert_addition, set)
    end
    flushing = {}
    update_directory()
end
