-- Assign the numbers of runs (pk) and of claims (fence). Both only grow. Called by the commands
-- that insert or claim runs, and by those that take a session.

local text = S.text
local NAMES = {'pk', 'fence'}
local before            -- the stored values
local pk, fence         -- the last numbers assigned in this call; nil: none

local function load()
    before = call('HMGET', P .. 'counters', unpack(NAMES))
end

function S.next_pk()
    if not before then
        load()
    end
    pk = (pk or tonumber(before[1] or 0)) + 1
    return pk
end

-- Return the next fence. It is at least the server's time in microseconds, so a server that lost
-- its last seconds does not assign a fence twice: its clock has moved on while it restarted.
function S.next_fence()
    if not before then
        load()
    end
    local microseconds = S.server_time[1] * 1000000 + S.server_time[2]
    fence = (fence or math.max(tonumber(before[2] or 0), microseconds - 1)) + 1
    return fence
end

local function revert_counters(try, key, was)
    for i, name in ipairs(NAMES) do
        if was[i] then
            try('HSET', key, name, was[i])
        else
            try('HDEL', key, name)
        end
    end
end

function S.flush_counters()
    local now = {pk and text(pk) or before[1], fence and text(fence) or before[2]}
    local set = {}
    for i, name in ipairs(NAMES) do
        if now[i] ~= before[i] then
            set[#set + 1], set[#set + 2] = name, now[i]
        end
    end
    if #set > 0 then
        call('HSET', P .. 'counters', unpack(set))
        S.on_rollback(revert_counters, P .. 'counters', before)
        before = now
    end
end
