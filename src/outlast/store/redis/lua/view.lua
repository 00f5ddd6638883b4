-- What one call sees of the store, and what it is going to write: verbs change it in memory, and `S.flush` writes it.

local CHUNK, text = S.CHUNK, S.text

-- Hashes, field by field. `now` has false for what is not there; `was` has it for what is changed.

local hashes, dirty = {}, {}

local function hash(key)
    local it = hashes[key]
    if not it then
        it = {now = {}, was = {}}
        hashes[key] = it
    end
    return it
end

local function hget(key, field)
    local it = hash(key)
    local value = it.now[field]
    if value == nil then
        value = not it.whole and call('HGET', key, field)
        it.now[field] = value
    end
    return value or nil
end
S.hget = hget

-- nil deletes the field; a number is written when the view is.
function S.hset(key, field, value)
    local before = hget(key, field) or false
    local it = hashes[key]
    if it.was[field] == nil then
        it.was[field] = before
    end
    it.now[field] = value or false
    dirty[key] = it
end

-- A field that is known not to be there yet.
function S.hput(key, field, value)
    local it = hash(key)
    local fresh = it.fresh
    if not fresh then
        fresh = {}
        it.fresh = fresh
    end
    local size = #fresh
    fresh[size + 1], fresh[size + 2] = field, value
    it.now[field] = value
    dirty[key] = it
end

function S.hincr(key, field, by)
    local before = hget(key, field) or false
    local it = hashes[key]
    if it.was[field] == nil then
        it.was[field] = before
    end
    local number = (tonumber(before) or 0) + by
    it.now[field] = number
    dirty[key] = it
    return number
end

-- The whole hash, as it is now; empty if there is none.
function S.hall(key)
    local it = hash(key)
    if not it.whole then
        local flat = call('HGETALL', key)
        for i = 1, #flat, 2 do
            if it.now[flat[i]] == nil then
                it.now[flat[i]] = flat[i + 1]
            end
        end
        it.whole = true
    end
    local all = {}
    for field, value in pairs(it.now) do
        if value then
            all[field] = value
        end
    end
    return all
end

-- It goes, whatever is to be written of it.
function S.forget_hash(key)
    hashes[key], dirty[key] = nil, nil
    hash(key).whole = true
end

-- Sorted sets: only written here; who reads one flushes first.

local sets = {}       -- key -> {was = {member -> score}, now = the same}: of what was changed. A score is a number or its text
local directory = {}  -- key -> where it is listed while it is not empty, and as what

local function sorted(key, listed_in, as)
    local it = sets[key]
    if not it then
        it = {was = {}, now = {}}
        sets[key] = it
        directory[key] = listed_in and {listed_in, as} or nil
    end
    return it
end

-- A member that is not there, or was taken out.
function S.zadd(key, score, member, listed_in, as)
    sorted(key, listed_in, as).now[member] = score
end

-- A member that is there with this score, or was put in.
function S.zrem(key, score, member, listed_in, as)
    local it = sorted(key, listed_in, as)
    if it.now[member] ~= nil then
        it.now[member] = nil
    elseif it.was[member] == nil then
        it.was[member] = score
    end
end

local function as_text(score)
    return type(score) == 'number' and text(score) or score
end

-- Members go out of a sorted set, or come in: both ways round, each the other's inverse. So many at a time.
local function flush_members(key, scores, others, comes)
    local scored, plain, size = {'ZADD', key}, {'ZREM', key}, 2
    local function write()
        if size > 2 and comes then
            S.write(plain, unpack(scored))
        elseif size > 2 then
            S.write(scored, unpack(plain))
        end
        scored, plain, size = {'ZADD', key}, {'ZREM', key}, 2
    end
    for member, score in pairs(scores) do
        if others[member] == nil then
            size = size + 1
            plain[size], scored[2 * size - 3], scored[2 * size - 2] = member, as_text(score), member
            if size > CHUNK then
                write()
            end
        end
    end
    write()
end

-- Members that stay, with another score.
local function flush_moved(key, it)
    for member, score in pairs(it.now) do
        local was = it.was[member]
        if was ~= nil and was ~= score then
            S.write({'ZADD', key, as_text(was), member}, 'ZADD', key, as_text(score), member)
        end
    end
end

local function flush_directory()
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

local function flush_hash(key, it)
    local set, unset, reset, absent = it.fresh or {}, {}, {}, {}
    for i = 1, #set, 2 do
        absent[#absent + 1] = set[i]
    end
    for field, was in pairs(it.was) do
        local now = it.now[field]
        if type(now) == 'number' then
            now = text(now)
            it.now[field] = now
        end
        if now ~= was then
            if now then
                set[#set + 1], set[#set + 2] = field, now
            else
                unset[#unset + 1] = field
            end
            if was then
                reset[#reset + 1], reset[#reset + 2] = field, was
            else
                absent[#absent + 1] = field
            end
        end
    end
    it.was, it.fresh = {}, nil
    S.write_fields(key, set, unset, reset, absent)
end

-- Write the view. What frees memory goes first: a full server refuses the first command that needs some, or none.
function S.flush()
    S.at_hand('place_rows')
    S.at_hand('flush_drops')
    local changed = sets
    sets = {}
    for key, it in pairs(changed) do
        flush_members(key, it.was, it.now, false)
    end
    S.write_all_pending()
    S.at_hand('flush_rows')
    for key, it in pairs(dirty) do
        flush_hash(key, it)
    end
    dirty = {}
    for key, it in pairs(changed) do
        flush_members(key, it.now, it.was, true)
        if next(it.was) ~= nil then
            flush_moved(key, it)
        end
    end
    S.at_hand('flush_lists')
    flush_directory()
end

