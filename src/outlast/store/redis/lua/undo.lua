-- A script that fails has no rollback. So each command that writes leaves here what takes it back, and whatever fails, that is executed
-- backwards: a call happens whole or not at all. What cannot be taken back (freeing memory) is done last, when nothing can fail any more.

local CHUNK = 1000  -- arguments of one command, at the most: `unpack` ends at 8,000
S.CHUNK = CHUNK
S.NEVER = 1e12

-- Lua writes numbers with 14 digits unless told.
local texts = {}  -- of small ones, and of the time
local function text(number)
    if number == 0 then  -- whatever its sign
        return '0'
    end
    local found = texts[number]
    if not found then
        found = string.format('%.17g', number)
        if number == S.now or number >= 0 and number < 1000 then
            texts[number] = found
        end
    end
    return found
end
S.text = text

-- A name of a user's in front of another one: its length first, so that no two pairs are one text.
function S.pair(first, second)
    return #first .. ':' .. first .. ':' .. second
end

local undo = {}  -- in the order of writing: a function, and two things that it takes

function S.wrote(take_back, one, other)
    local size = #undo
    undo[size + 1], undo[size + 2], undo[size + 3] = take_back, one or false, other or false
end

local function command(try, inverse)
    try(unpack(inverse))
end

function S.write(inverse, ...)
    call(...)
    S.wrote(command, inverse)
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
    for i = #undo - 2, 1, -3 do
        undo[i](try, undo[i + 1], undo[i + 2])
    end
    return #undo > 0, failed
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
            S.wrote(fields, key, before)
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

-- What other files are going to write, if this call has come to need them.
function S.at_hand(name, ...)
    local act = rawget(S, name)
    if act then
        act(...)
    end
end

-- What is going to be written of a run that is not in the view.
function S.write_pending(pk)
    S.at_hand('write_entries', pk)
    S.at_hand('write_changes', pk)
end

function S.write_all_pending()
    S.at_hand('write_all_entries')
    S.at_hand('write_all_changes')
end
