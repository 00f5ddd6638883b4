-- Sorted sets: only written here; who reads one flushes first.

local CHUNK, text = S.CHUNK, S.text

local sets = {}       -- key -> {was = {member -> score}, now = the same}: of what was changed. A score is a number or its text
local changed = {}    -- the same, while it is written
local directory = {}  -- key -> where it is listed while it is not empty, and as what

local function sorted(key, listed_in, as)
    local it = {was = {}, now = {}}
    sets[key] = it
    directory[key] = listed_in and {listed_in, as} or nil
    return it
end

-- A member that is not there, or was taken out.
function S.zadd(key, score, member, listed_in, as)
    local it = sets[key] or sorted(key, listed_in, as)
    it.now[member] = score
end

-- A member that is there with this score, or was put in.
function S.zrem(key, score, member, listed_in, as)
    local it = sets[key] or sorted(key, listed_in, as)
    if it.now[member] ~= nil then
        it.now[member] = nil
    elseif it.was[member] == nil then
        it.was[member] = score
    end
end

-- The whole set goes, whatever is to be written of it.
function S.forget_set(key)
    sets[key], directory[key] = nil, nil
end

local function as_text(score)
    return type(score) == 'number' and text(score) or score
end

local function back_in(try, key, it)
    for member, score in pairs(it.was) do
        try('ZADD', key, as_text(score), member)
    end
end

local function back_out(try, key, it)
    for member in pairs(it.now) do
        if it.was[member] == nil then
            try('ZREM', key, member)
        else
            try('ZADD', key, as_text(it.was[member]), member)
        end
    end
end

-- So many at a time. Once the first command has shown that the key is a sorted set, none after it can fail.
local function write(name, key, members, back, it)
    for start = 1, #members, CHUNK do
        call(name, key, unpack(members, start, math.min(start + CHUNK - 1, #members)))
        if start == 1 then
            S.on_rollback(back, key, it)
        end
    end
end

function S.flush_removed_members()
    changed, sets = sets, {}
    for key, it in pairs(changed) do
        local now, members, size = it.now, {}, 0
        for member in pairs(it.was) do
            if now[member] == nil then
                size = size + 1
                members[size] = member
            end
        end
        write('ZREM', key, members, back_in, it)
    end
end

-- Members that stay, with another score, are written in the same command as new ones.
function S.flush_added_members()
    for key, it in pairs(changed) do
        local was, members, size = it.was, {}, 0
        for member, score in pairs(it.now) do
            if was[member] ~= score then
                members[size + 1], members[size + 2] = as_text(score), member
                size = size + 2
            end
        end
        write('ZADD', key, members, back_out, it)
    end
    changed = {}
    for key, where in pairs(directory) do
        local empty = call('EXISTS', key) == 0
        if empty ~= (call('SISMEMBER', where[1], where[2]) == 0) then
            if empty then
                S.write({'SADD', where[1], where[2]}, 'SREM', where[1], where[2])
            else
                S.write({'SREM', where[1], where[2]}, 'SADD', where[1], where[2])
            end
        end
    end
    directory = {}
end
