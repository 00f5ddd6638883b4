-- What one call sees of the store, and what it is going to write.
--
-- A script that fails has no rollback. So verbs change a view in memory; `S.flush` writes it, each command with its inverse, and
-- whatever fails, the inverses are executed backwards: a call happens whole or not at all. What cannot be taken back
-- (freeing memory) is done last, when nothing can fail any more.

local CHUNK = 1000  -- arguments of one command, at the most: `unpack` ends at 8,000
S.CHUNK = CHUNK
S.NEVER = 1e12

-- Lua writes numbers with 14 digits unless told.
local now_text
local function text(number)
    if number == S.now then
        now_text = now_text or string.format('%.17g', number)
        return now_text
    end
    return string.format('%.17g', number)
end
S.text = text

-- A name of a user's in front of another one: its length first, so that no two pairs are one text.
function S.pair(first, second)
    return #first .. ':' .. first .. ':' .. second
end

local undo = {}  -- what takes back what was written, in the order of writing: commands, or {fields of a hash as they were}
local last = {}  -- commands for the end

function S.write(inverse, ...)
    call(...)
    undo[#undo + 1] = inverse
end

local function every(flat, act)
    for start = 1, #flat, CHUNK do
        act(unpack(flat, start, math.min(start + CHUNK - 1, #flat)))
    end
end

-- Whether anything was written; how many inverses failed.
function S.take_back()
    local failed = 0
    local function try(...)
        local result = redis.pcall(...)
        if type(result) == 'table' and result.err then
            failed = failed + 1
        end
    end
    for i = #undo, 1, -1 do
        local it = undo[i]
        if it.fields then
            every(it.absent, function(...) try('HDEL', it.fields, ...) end)
            every(it.reset, function(...) try('HSET', it.fields, ...) end)
        else
            try(unpack(it))
        end
    end
    return #undo > 0, failed
end

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

-- Sorted sets and lists: only written here; who reads one flushes first.

local added, removed = {}, {}  -- key -> {score (a number or its text), member, ...}
local directory = {}           -- key -> where it is listed while it is not empty, and as what
local lists = {}               -- key -> {{values} or a count, ...}
local drops = {}               -- keys, in order

local function change(changes, key, score, member, listed_in, as)
    local it = changes[key]
    if not it then
        it = {}
        changes[key] = it
        directory[key] = listed_in and {listed_in, as} or nil
    end
    local size = #it
    it[size + 1], it[size + 2] = score, member
end

function S.zadd(key, score, member, listed_in, as)
    change(added, key, score, member, listed_in, as)
end

function S.zrem(key, score, member, listed_in, as)
    change(removed, key, score, member, listed_in, as)
end

function S.push(key, value)
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
function S.keep(key, count)
    local ops = lists[key] or {}
    lists[key] = ops
    ops[#ops + 1] = count
end

-- A key goes, whatever it is and whatever of it is in the view.
function S.drop(key)
    lists[key], hashes[key], dirty[key] = nil, nil, nil
    drops[#drops + 1] = key
    hash(key).whole = true
end

local function flush_drops()
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

-- Both ways round: {score, member, ...} and {member, ...}.
local function flush_sorted(changes, adds)
    for key, flat in pairs(changes) do
        for start = 1, #flat, CHUNK do
            local scored, plain = {'ZADD', key}, {'ZREM', key}
            for i = start, math.min(start + CHUNK - 1, #flat), 2 do
                local score, size = flat[i], #scored
                scored[size + 1], scored[size + 2] = type(score) == 'number' and text(score) or score, flat[i + 1]
                plain[#plain + 1] = flat[i + 1]
            end
            if adds then
                S.write(plain, unpack(scored))
            else
                S.write(scored, unpack(plain))
            end
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

-- Fields of a hash: those to set and unset, and, to take that back, those to set again and to unset. The first command proves that
-- the key is a hash; none after it can fail.
function S.write_fields(key, set, unset, reset, absent)
    local back = {fields = key, reset = reset, absent = absent}
    for start = 1, #unset, CHUNK do
        call('HDEL', key, unpack(unset, start, math.min(start + CHUNK - 1, #unset)))
        undo[#undo + 1], back = back, nil
    end
    for start = 1, #set, CHUNK do
        call('HSET', key, unpack(set, start, math.min(start + CHUNK - 1, #set)))
        undo[#undo + 1], back = back, nil
    end
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

-- Write the view. What frees memory goes first: a full server refuses the first command that needs some, or none.
function S.flush()
    S.place_rows()
    flush_drops()
    flush_sorted(removed, false)
    removed = {}
    S.flush_rows()
    for key, it in pairs(dirty) do
        flush_hash(key, it)
    end
    dirty = {}
    flush_sorted(added, true)
    added = {}
    for key, ops in pairs(lists) do
        flush_list(key, ops)
    end
    lists = {}
    flush_directory()
end

-- What cannot be taken back, after all the rest.
function S.finish()
    for _, command in ipairs(last) do
        redis.pcall(unpack(command))
    end
end
