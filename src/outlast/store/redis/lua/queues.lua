-- Queues: their counts, which are exact, and their limits. Nothing here is a table of all runs.

local COUNTED = {queued = true, running = true, waiting = true, parked = true, dead = true}
local MINUTE = 60

local keys, rates = {}, {}  -- made once a call

local function key(name)
    local found = keys[name]
    if not found then
        found = P .. 'queue:' .. name
        keys[name], rates[name] = found, P .. 'rate:' .. name
    end
    return found
end

-- How many are in a status. `running` leaves out children: these execute with their parents and take no slot.
function S.count(queue, status)
    return tonumber(S.hget(key(queue), status)) or 0
end

function S.limit(queue, name)
    return tonumber(S.hget(key(queue), name))
end

-- How many more of its runs may be claimed.
function S.room(queue)
    local most = S.limit(queue, 'concurrency_max')
    return most and most - S.count(queue, 'running') or math.huge
end

local listed = {}

function S.list_queue(queue)
    if not listed[queue] then
        listed[queue] = true
        if not call('ZSCORE', P .. 'queues', queue) then
            S.zadd(P .. 'queues', 0, queue)
        end
    end
end

local function one(queue, child, status, by)
    if COUNTED[status] and not (status == 'running' and child) then
        S.hincr(key(queue), status, by)
    end
end

-- A run went from one status to another (nil: it is new, or gone). `child`: it has a parent.
function S.counted(queue, child, before, after)
    if before == after then
        return
    end
    S.list_queue(queue)
    if before then
        one(queue, child, before, -1)
    end
    if after then
        one(queue, child, after, 1)
    end
    if before == 'running' and not child and S.limit(queue, 'concurrency_max') then
        S.rings = true
    end
end

-- Something happened in a queue ('s': submitted, 'e': ended): counted by the second, for a minute.
function S.happened(queue, what, at, by)
    local second = math.floor(at)
    key(queue)
    local rate = rates[queue]
    if S.hincr(rate, what .. second, by or 1) == 1 then
        for field in pairs(S.hall(rate)) do
            local age = second - tonumber(field:sub(2))
            if age > 2 * MINUTE or age < -2 * MINUTE then
                S.hset(rate, field, nil)
            end
        end
    end
end

function S.happened_lately(queue)
    local found = {s = 0, e = 0}
    local now = math.floor(S.now)
    for field, count in pairs(S.hall(P .. 'rate:' .. queue)) do
        if tonumber(field:sub(2)) > now - MINUTE then
            local what = field:sub(1, 1)
            found[what] = found[what] + tonumber(count)
        end
    end
    return found.s, found.e
end

function S.Limit(verb)
    S.list_queue(verb.queue)
    S.hset(key(verb.queue), 'depth_max', verb.depth_max and S.text(verb.depth_max))
    S.hset(key(verb.queue), 'concurrency_max', verb.concurrency_max and S.text(verb.concurrency_max))
end
