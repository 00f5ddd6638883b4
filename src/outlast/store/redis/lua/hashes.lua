-- What one call sees of the store, and what it is going to write: commands change it in memory, and `S.flush` writes it. Here: hashes,
-- field by field.

local CHUNK, text = S.CHUNK, S.text

-- `now` has false for what is not there; `was` has it for what is changed.

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

-- The row of the run with this id; nil if there is none, and then `rows.lua` is not needed.
function S.row_by_id(id)
    local pk = hget(P .. 'ids', id)
    return pk and S.row(pk)
end

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
function S.hset_new(key, field, value)
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
function S.hgetall(key)
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

-- The names of its fields, as they are now. The values are not read.
function S.hkeys(key)
    local it, all = hash(key), {}
    for field, value in pairs(it.now) do
        if value then
            all[#all + 1] = field
        end
    end
    if not it.whole then
        for _, field in ipairs(call('HKEYS', key)) do
            if it.now[field] == nil then
                all[#all + 1] = field
            end
        end
    end
    return all
end

-- It goes, whatever is to be written of it.
function S.forget_hash(key)
    hashes[key], dirty[key] = nil, nil
    hash(key).whole = true
end

local function every(flat, act)
    for start = 1, #flat, CHUNK do
        act(unpack(flat, start, math.min(start + CHUNK - 1, #flat)))
    end
end

local function fields(try, key, before)
    every(before.absent, function(...) try('HDEL', key, ...) end)
    every(before.reset, function(...) try('HSET', key, ...) end)
end

-- Fields of a hash: those to set and unset, and, to take that back, those to set again and to unset. The first command proves that
-- the key is a hash; none after it can fail.
function S.write_fields(key, set, unset, reset, absent)
    local before = {reset = reset, absent = absent}
    local function wrote()
        if before then
            S.on_rollback(fields, key, before)
            before = nil
        end
    end
    every(unset, function(...)
        call('HDEL', key, ...)
        wrote()
    end)
    every(set, function(...)
        call('HSET', key, ...)
        wrote()
    end)
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

function S.flush_hashes()
    for key, it in pairs(dirty) do
        flush_hash(key, it)
    end
    dirty = {}
end
