-- Maintain each queue's counts, limits and rates. The counts are exact: every change of a run's
-- status updates them, so nothing ever scans all runs. Also holds the command SetQueueLimits.

local text = S.text

local FIELDS = {
    'queued', 'running', 'waiting', 'parked', 'dead', 'depth_max', 'concurrency_max',
    'key_concurrency_max', 'key_starts_max', 'key_period', 'paused',
}
local COUNTED = {queued = true, running = true, waiting = true, parked = true, dead = true}
local MINUTE = 60

-- name -> {was, now, s, e, changed, listed}
--   was: the stored values of FIELDS; now: name -> current number
--   s, e: second -> how many runs were submitted and ended in this call
--   changed: there is something to write; listed: the queue is in the set of queues
local queues = {}

local function load(name)
    local queue = queues[name]
    if not queue then
        local was, now = call('HMGET', P .. 'queue:' .. name, unpack(FIELDS)), {}
        for i = 1, #FIELDS do
            now[FIELDS[i]] = tonumber(was[i] or nil)
        end
        queue = {was = was, now = now, s = {}, e = {}}
        queues[name] = queue
    end
    return queue
end

-- Return how many runs of a queue have this status. Children are not counted as running: they
-- execute with their parents and take no slot.
function S.status_count(name, status)
    return load(name).now[status] or 0
end

-- Return a limit of a queue, such as 'depth_max'; nil if it has none.
function S.queue_limit(name, limit)
    return load(name).now[limit]
end

-- Return how many more runs of a queue may be claimed.
function S.free_slots(name)
    local now = load(name).now
    if now.paused then
        return 0
    end
    return now.concurrency_max and now.concurrency_max - (now.running or 0) or math.huge
end

-- Count a run that changes its status. `before` is nil for a new run, `after` for a deleted one.
-- `child`: the run has a parent.
function S.count_status_change(name, child, before, after)
    if before == after then
        return
    end
    local queue = load(name)
    local now = queue.now
    queue.changed = true
    if COUNTED[before] and not (child and before == 'running') then
        now[before] = (now[before] or 0) - 1
    end
    if COUNTED[after] and not (child and after == 'running') then
        now[after] = (now[after] or 0) + 1
    end
    local frees_slot = now.concurrency_max or now.key_concurrency_max
    if before == 'running' and not child and frees_slot then
        S.must_notify = true
    end
end

-- Count a submitted ('s') or ended ('e') run in the second `at`. The counts of the last minute
-- give the rates of a queue.
function S.count_event(name, event, at, by)
    local queue = load(name)
    local seconds, second = queue[event], math.floor(at)
    queue.changed = true
    seconds[second] = (seconds[second] or 0) + (by or 1)
end

function S.SetQueueLimits(command)
    local queue = load(command.queue)
    queue.changed = true
    if not command.keep_depth then
        queue.now.depth_max = command.depth_max
    end
    if not command.keep_concurrency then
        queue.now.concurrency_max = command.concurrency_max
    end
    if not command.keep_key_concurrency then
        queue.now.key_concurrency_max = command.key_concurrency_max
    end
    if not command.keep_key_rate then
        queue.now.key_starts_max = command.key_starts_max
        queue.now.key_period = command.key_period
    end
    if command.paused ~= nil then
        queue.now.paused = command.paused and 1 or nil
    end
    if not (command.keep_key_concurrency and command.keep_key_rate) then
        S.flush()
        S.note_keys_of(command.queue)
    end
end

local function revert_rate(try, rate, change)
    if change[2] then
        try('HDEL', rate, change[1])
    else
        try('HINCRBY', rate, change[1], -change[3])
    end
end

-- Add to the count of one second. The first event of a second also deletes old counts.
local function write_rate(rate, field, by)
    local is_first = call('HINCRBY', rate, field, by) == by
    S.on_rollback(revert_rate, rate, {field, is_first, by})
    if is_first then
        local flat, now = call('HGETALL', rate), math.floor(S.now)
        for i = 1, #flat, 2 do
            local age = now - tonumber(flat[i]:sub(2))
            if age > 2 * MINUTE or age < -2 * MINUTE then
                S.write({'HSET', rate, flat[i], flat[i + 1]}, 'HDEL', rate, flat[i])
            end
        end
    end
end

local function revert_fields(try, key, was)
    for i = 1, #FIELDS do
        if was[i] then
            try('HSET', key, FIELDS[i], was[i])
        else
            try('HDEL', key, FIELDS[i])
        end
    end
end

local function write_fields(key, queue)
    local was, now, set, unset = queue.was, {}, {}, {}
    for i = 1, #FIELDS do
        local value = queue.now[FIELDS[i]]
        now[i] = value and text(value) or false
        if now[i] and now[i] ~= was[i] then
            set[#set + 1], set[#set + 2] = FIELDS[i], now[i]
        elseif was[i] and not now[i] then
            unset[#unset + 1] = FIELDS[i]
        end
    end
    queue.was = now
    if #unset > 0 then
        call('HDEL', key, unpack(unset))
        S.on_rollback(revert_fields, key, was)
    end
    if #set > 0 then
        call('HSET', key, unpack(set))
        S.on_rollback(revert_fields, key, was)
    end
end

local function write(name, queue)
    if not queue.listed then
        queue.listed = true
        if not call('ZSCORE', P .. 'queues', name) then
            S.write({'ZREM', P .. 'queues', name}, 'ZADD', P .. 'queues', '0', name)
        end
    end
    write_fields(P .. 'queue:' .. name, queue)
    for _, event in ipairs({'s', 'e'}) do
        for second, by in pairs(queue[event]) do
            if by ~= 0 then
                write_rate(P .. 'rate:' .. name, event .. text(second), by)
            end
        end
        queue[event] = {}
    end
    queue.changed = nil
end

function S.flush_queues()
    for name, queue in pairs(queues) do
        if queue.changed then
            write(name, queue)
        end
    end
end

-- Return how many runs of a queue were submitted and how many ended in the last minute.
function S.events_last_minute(name)
    local found = {s = 0, e = 0}
    local now = math.floor(S.now)
    for field, count in pairs(S.hgetall(P .. 'rate:' .. name)) do
        if tonumber(field:sub(2)) > now - MINUTE then
            local event = field:sub(1, 1)
            found[event] = found[event] + tonumber(count)
        end
    end
    return found.s, found.e
end
