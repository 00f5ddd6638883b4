-- Buffer reads and writes of hashes, field by field. Commands call `S.hget` and `S.hset`;
-- `S.flush_hashes` writes the changed fields.

local CHUNK, text = S.CHUNK, S.text

-- key -> {now, was, fresh, complete}
--   now: field -> current value; false: there is none
--   was: field -> stored value of a changed field; false: there was none
--   fresh: {field, value, ...} of fields that `S.hset_new` added
--   complete: `now` has all fields of the hash
local hashes = {}
local dirty = {}  -- the subset that has changes to write

local function buffered(key)
    local hash = hashes[key]
    if not hash then
        hash = {now = {}, was = {}}
        hashes[key] = hash
    end
    return hash
end

-- Return a field; nil if there is none.
local function hget(key, field)
    local hash = buffered(key)
    local value = hash.now[field]
    if value == nil then
        value = not hash.complete and call('HGET', key, field)
        hash.now[field] = value
    end
    return value or nil
end
S.hget = hget

-- Return the row of the run with this id; nil if there is none. It is defined here and not in
-- rows.lua, which need not be loaded to find that there is none.
function S.row_by_id(id)
    local pk = hget(P .. 'ids', id)
    return pk and S.row(pk)
end

-- Set a field; nil deletes it. `S.flush_hashes` formats numbers.
function S.hset(key, field, value)
    local before = hget(key, field) or false
    local hash = hashes[key]
    if hash.was[field] == nil then
        hash.was[field] = before
    end
    hash.now[field] = value or false
    dirty[key] = hash
end

-- Set a field that does not exist yet, without reading it.
function S.hset_new(key, field, value)
    local hash = buffered(key)
    local fresh = hash.fresh
    if not fresh then
        fresh = {}
        hash.fresh = fresh
    end
    local size = #fresh
    fresh[size + 1], fresh[size + 2] = field, value
    hash.now[field] = value
    dirty[key] = hash
end

-- Add to a number, 0 if the field does not exist. Return the sum.
function S.hincr(key, field, by)
    local before = hget(key, field) or false
    local hash = hashes[key]
    if hash.was[field] == nil then
        hash.was[field] = before
    end
    local number = (tonumber(before) or 0) + by
    hash.now[field] = number
    dirty[key] = hash
    return number
end

-- Return the whole hash, including buffered changes. It is empty if the key does not exist.
function S.hgetall(key)
    local hash = buffered(key)
    if not hash.complete then
        local flat = call('HGETALL', key)
        for i = 1, #flat, 2 do
            if hash.now[flat[i]] == nil then
                hash.now[flat[i]] = flat[i + 1]
            end
        end
        hash.complete = true
    end
    local all = {}
    for field, value in pairs(hash.now) do
        if value then
            all[field] = value
        end
    end
    return all
end

-- Return the names of all fields, including buffered changes, without reading the values.
function S.hkeys(key)
    local hash, all = buffered(key), {}
    for field, value in pairs(hash.now) do
        if value then
            all[#all + 1] = field
        end
    end
    if not hash.complete then
        for _, field in ipairs(call('HKEYS', key)) do
            if hash.now[field] == nil then
                all[#all + 1] = field
            end
        end
    end
    return all
end

-- Treat a hash as empty and discard its buffered changes. `S.delete_key` deletes the key.
function S.forget_hash(key)
    hashes[key], dirty[key] = nil, nil
    buffered(key).complete = true
end

local function in_chunks(flat, act)
    for start = 1, #flat, CHUNK do
        act(unpack(flat, start, math.min(start + CHUNK - 1, #flat)))
    end
end

local function revert_fields(try, key, before)
    in_chunks(before.absent, function(...) try('HDEL', key, ...) end)
    in_chunks(before.reset, function(...) try('HSET', key, ...) end)
end

-- Set and unset fields of a hash. A rollback sets those in `reset` again and unsets those in
-- `absent`. If the key is not a hash, the first command fails; later ones cannot.
function S.write_fields(key, set, unset, reset, absent)
    local before = {reset = reset, absent = absent}
    local function register()
        if before then
            S.on_rollback(revert_fields, key, before)
            before = nil
        end
    end
    in_chunks(unset, function(...)
        call('HDEL', key, ...)
        register()
    end)
    in_chunks(set, function(...)
        call('HSET', key, ...)
        register()
    end)
end

local function flush_hash(key, hash)
    local set, unset, reset, absent = hash.fresh or {}, {}, {}, {}
    for i = 1, #set, 2 do
        absent[#absent + 1] = set[i]
    end
    for field, was in pairs(hash.was) do
        local now = hash.now[field]
        if type(now) == 'number' then
            now = text(now)
            hash.now[field] = now
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
    hash.was, hash.fresh = {}, nil
    S.write_fields(key, set, unset, reset, absent)
end

function S.flush_hashes()
    for key, hash in pairs(dirty) do
        flush_hash(key, hash)
    end
    dirty = {}
end
