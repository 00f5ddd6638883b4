-- Shared functions of every call: number formatting, key parts, the rollback log and `S.flush`.
-- The commit, record and read scripts all contain this file.
--
-- Redis does not roll back a script that fails. So a call buffers its changes in memory, and every
-- write registers a function that reverts it (`S.on_rollback`). If anything fails, `rollback.lua`
-- calls these functions in reverse order, so a call takes effect as a whole or not at all. Freeing
-- memory cannot be reverted, so it happens last, after everything that can fail.
--
-- The buffer consists of hashes.lua, sorted_sets.lua, lists.lua, rows.lua, queues.lua and
-- counters.lua. A run is *loaded* if its row is in the buffer (rows.lua). Loading a row is
-- expensive, so the fast paths (record_fast_path.lua, settle_fast_path.lua and parts of claim.lua)
-- handle common commands of runs that are not loaded.

S.CHUNK = 1000  -- the most arguments in one Redis command; `unpack` allows up to 8,000
S.NEVER = 1e12

local texts = {}  -- number -> text, for small numbers and the current time

-- Format a number without losing digits. By default Lua prints only 14.
local function text(number)
    if number == 0 then  -- also for -0
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

-- Join two names into one text. The length of the first comes in front, so that different pairs
-- give different texts whatever characters the names contain.
function S.pair(first, second)
    local head = heads[first]
    if not head then
        head = #first .. ':' .. first .. ':'
        heads[first] = head
    end
    return head .. second
end

local inverses, size = {}, 0  -- in the order of the writes: a function and its two arguments each
S.inverses = inverses

-- Register a function that reverts a write. A rollback calls it with `try`, which executes a Redis
-- command, and with these two arguments.
function S.on_rollback(revert, first, second)
    inverses[size + 1] = revert
    inverses[size + 2], inverses[size + 3] = first or false, second or false
    size = size + 3
end

local function execute(try, inverse)
    try(unpack(inverse))
end

-- Execute a Redis command. `inverse` is the command that reverts it.
function S.write(inverse, ...)
    call(...)
    S.on_rollback(execute, inverse)
end

-- Call a function of `S` if its file was loaded in this call. If not, it has nothing to do.
local function call_if_defined(name, argument)
    local act = rawget(S, name)
    if act then
        act(argument)
    end
end
S.call_if_defined = call_if_defined

-- Return a field of a hash, including buffered changes. This does not load hashes.lua.
function S.read_field(key, field)
    local hget = rawget(S, 'hget')
    if hget then
        return hget(key, field)
    end
    return call('HGET', key, field) or nil
end

-- Write the pending changes of a run that is not loaded.
function S.flush_run(pk)
    call_if_defined('flush_entries_of', pk)
    call_if_defined('flush_update_of', pk)
end

-- Write all buffered changes. Deletes and removals go first: they need no memory, so a full server
-- refuses the first write that does need some, or none.
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
