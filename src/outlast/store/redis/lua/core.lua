-- What every call needs. A script that fails has no rollback, so each command that writes leaves here what takes it back, and whatever
-- fails, that is executed backwards (`rollback.lua`): a call happens whole or not at all. What cannot be taken back (freeing memory) is
-- done last, when nothing can fail any more.

S.CHUNK = 1000  -- arguments of one command, at the most: `unpack` ends at 8,000
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

local heads = {}

-- A name of a user's in front of another one: its length first, so that no two pairs are one text.
function S.pair(first, second)
    local head = heads[first]
    if not head then
        head = #first .. ':' .. first .. ':'
        heads[first] = head
    end
    return head .. second
end

local undo, size = {}, 0  -- in the order of writing: a function, and two things that it takes
S.inverses = undo

function S.on_rollback(take_back, one, other)
    undo[size + 1], undo[size + 2], undo[size + 3] = take_back, one or false, other or false
    size = size + 3
end

local function command(try, inverse)
    try(unpack(inverse))
end

function S.write(inverse, ...)
    call(...)
    S.on_rollback(command, inverse)
end

-- What other files are going to write, if this call has come to need them.
local function call_if_defined(name, one)
    local act = rawget(S, name)
    if act then
        act(one)
    end
end
S.call_if_defined = call_if_defined

-- A field of a hash: as the view has it, if there is one.
function S.read_field(key, field)
    local hget = rawget(S, 'hget')
    if hget then
        return hget(key, field)
    end
    return call('HGET', key, field) or nil
end

-- What is going to be written of a run that is not in the view.
function S.flush_run(pk)
    call_if_defined('flush_entries_of', pk)
    call_if_defined('flush_update_of', pk)
end

-- Write the view, and the rest. What frees memory goes first: a full server refuses the first command that needs some, or none.
function S.flush()
    call_if_defined('update_indexes')
    call_if_defined('flush_deletes')
    call_if_defined('flush_removed_members')
    call_if_defined('flush_entries')
    call_if_defined('flush_updates')
    call_if_defined('flush_rows')
    call_if_defined('flush_queues')
    call_if_defined('flush_counters')
    call_if_defined('flush_hashes')
    call_if_defined('flush_added_members')
    call_if_defined('flush_lists')
end
