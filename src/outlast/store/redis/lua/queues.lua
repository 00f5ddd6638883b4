-- Queues: their counts, which are exact, and their limits. Nothing here is a table of all runs.

local text = S.text

local FIELDS = {'queued', 'running', 'waiting', 'parked', 'dead', 'depth_max', 'concurrency_max'}
local COUNTED = {queued = true, running = true, waiting = true, parked = true, dead = true}
local MINUTE = 60

-- name -> {was, now: its fields, the limits by name too; s, e: second -> how many more were submitted, ended}; `touched`: to be written
local queues = {}

local function of(name)
    local it = queues[name]
    if not it then
        local was, now = call('HMGET', P .. 'queue:' .. name, unpack(FIELDS)), {}
        for i = 1, #FIELDS do
            now[FIELDS[i]] = tonumber(was[i] or nil)
        end
        it = {was = was, now = now, s = {}, e = {}}
        queues[name] = it
    end
    return it
end

-- How many are in a status. `running` leaves out children: these execute with their parents and take no slot.
function S.status_count(queue, status)
    return of(queue).now[status] or 0
end

function S.queue_limit(queue, name)
    return of(queue).now[name]
end

-- How many more of its runs may be claimed.
function S.free_slots(queue)
    local now = of(queue).now
    return now.concurrency_max and now.concurrency_max - (now.running or 0) or math.huge
end

-- A run went from one status to another (nil: it is new, or gone). `child`: it has a parent.
function S.count_status_change(queue, child, before, after)
    if before == after then
        return
    end
    local it = of(queue)
    local now = it.now
    it.touched = true
    if COUNTED[before] and not (child and before == 'running') then
        now[before] = (now[before] or 0) - 1
    end
    if COUNTED[after] and not (child and after == 'running') then
        now[after] = (now[after] or 0) + 1
    end
    if before == 'running' and not child and now.concurrency_max then
        S.must_notify = true
    end
end

-- Something happened in a queue ('s': submitted, 'e': ended): counted by the second, for a minute.
function S.count_event(queue, what, at, by)
    local it = of(queue)
    local seconds, second = it[what], math.floor(at)
    it.touched = true
    seconds[second] = (seconds[second] or 0) + (by or 1)
end

function S.SetQueueLimits(command)
    local it = of(command.queue)
    it.touched = true
    if not command.keep_depth then
        it.now.depth_max = command.depth_max
    end
    if not command.keep_concurrency then
        it.now.concurrency_max = command.concurrency_max
    end
end

local function rate_before(try, rate, it)
    if it[2] then
        try('HDEL', rate, it[1])
    else
        try('HINCRBY', rate, it[1], -it[3])
    end
end

-- The first of a second takes away what is older than anybody asks for.
local function write_rate(rate, field, by)
    local is_first = call('HINCRBY', rate, field, by) == by
    S.on_rollback(rate_before, rate, {field, is_first, by})
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

local function fields_before(try, key, was)
    for i = 1, #FIELDS do
        if was[i] then
            try('HSET', key, FIELDS[i], was[i])
        else
            try('HDEL', key, FIELDS[i])
        end
    end
end

local function write_fields(key, it)
    local was, now, set, unset = it.was, {}, {}, {}
    for i = 1, #FIELDS do
        local value = it.now[FIELDS[i]]
        now[i] = value and text(value) or false
        if now[i] and now[i] ~= was[i] then
            set[#set + 1], set[#set + 2] = FIELDS[i], now[i]
        elseif was[i] and not now[i] then
            unset[#unset + 1] = FIELDS[i]
        end
    end
    it.was = now
    if #unset > 0 then
        call('HDEL', key, unpack(unset))
        S.on_rollback(fields_before, key, was)
    end
    if #set > 0 then
        call('HSET', key, unpack(set))
        S.on_rollback(fields_before, key, was)
    end
end

local function write(name, it)
    if not it.listed then
        it.listed = true
        if not call('ZSCORE', P .. 'queues', name) then
            S.write({'ZREM', P .. 'queues', name}, 'ZADD', P .. 'queues', '0', name)
        end
    end
    write_fields(P .. 'queue:' .. name, it)
    for _, what in ipairs({'s', 'e'}) do
        for second, by in pairs(it[what]) do
            if by ~= 0 then
                write_rate(P .. 'rate:' .. name, what .. text(second), by)
            end
        end
        it[what] = {}
    end
    it.touched = nil
end

function S.flush_queues()
    for name, it in pairs(queues) do
        if it.touched then
            write(name, it)
        end
    end
end

function S.events_last_minute(queue)
    local found = {s = 0, e = 0}
    local now = math.floor(S.now)
    for field, count in pairs(S.hgetall(P .. 'rate:' .. queue)) do
        if tonumber(field:sub(2)) > now - MINUTE then
            local what = field:sub(1, 1)
            found[what] = found[what] + tonumber(count)
        end
    end
    return found.s, found.e
end
