-- The numbers of runs and of fences. They only grow.

local text = S.text
local NAMES = {'pk', 'fence'}
local before            -- as they were
local pk, fence         -- what was given out last, if anything was

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

-- Also over a server that has lost its last seconds: no clock stands still while one is restarted.
function S.next_fence()
    if not before then
        load()
    end
    fence = (fence or math.max(tonumber(before[2] or 0), S.server_time[1] * 1000000 + S.server_time[2] - 1)) + 1
    return fence
end

local function as_before(try, key, was)
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
        S.on_rollback(as_before, P .. 'counters', before)
        before = now
    end
end
