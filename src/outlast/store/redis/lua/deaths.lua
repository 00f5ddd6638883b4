-- Record the deaths of workers, and decide whether a run has died often enough to be a dead letter.
-- Called by Sweep (workers.lua); the command explains the rules under "Kill storms".
--
-- Deaths are in one sorted set, scored by time. A death has one member "RUN TIME WORKER" for each
-- run that is charged for it, or one with RUN 0 if none is.

local KEY = P .. 'worker_deaths'

-- Record the death of a worker and the runs that are charged for it. Delete the oldest records
-- beyond FLEET_DEATHS_MAX.
function S.record_death(worker, charged)
    for _, run in ipairs(#charged > 0 and charged or {'0'}) do
        S.zadd(KEY, S.now, run .. ' ' .. S.text(S.now) .. ' ' .. worker)
    end
    S.flush()
    local older = call('ZREVRANGE', KEY, S.FLEET_DEATHS_MAX, -1, 'WITHSCORES')
    for i = 1, #older, 2 do
        S.zrem(KEY, older[i + 1], older[i])
    end
end

-- Return since when the deaths of others count: since the run's first death in this row, but at
-- least FLEET_SECONDS_MIN and at most FLEET_SECONDS ago.
local function start_of_period(pk, in_a_row, all)
    local since, own = S.now - S.FLEET_SECONDS_MIN, 0
    for i = 1, #all, 2 do
        if own < in_a_row - 1 and all[i]:match('^%d+') == pk then
            since, own = math.min(since, tonumber(all[i + 1])), own + 1
        end
    end
    return math.max(since, S.now - S.FLEET_SECONDS)
end

-- Return how many workers died in the period without the run being charged. Deaths for which a
-- single other run is charged count once for that run.
local function other_deaths(pk, in_a_row)
    local all = call('ZREVRANGE', KEY, 0, -1, 'WITHSCORES')
    local since, deaths = start_of_period(pk, in_a_row, all), {}
    for i = 1, #all, 2 do
        local at = tonumber(all[i + 1])
        if at > since and at <= S.now then
            local run, death = all[i]:match('^(%d+) (.*)$')
            local record = deaths[death] or {charged = 0}
            record.charged, record.run = record.charged + 1, run
            record.own = record.own or run == pk
            deaths[death] = record
        end
    end
    local others, counted = 0, {}
    for _, record in pairs(deaths) do
        local is_single = record.charged == 1
        if not record.own and not (is_single and counted[record.run]) then
            others = others + 1
            counted[record.run] = is_single and record.run ~= '0' or counted[record.run]
        end
    end
    return others
end

-- Return the number of registered workers, including those that this sweep has deregistered.
local function fleet_size()
    local size, counted, now = call('ZCARD', P .. 'workers'), {}, S.text(S.now)
    for _, member in ipairs(call('ZRANGEBYSCORE', KEY, now, now)) do
        local worker = member:match('^%S+ %S+ (.*)$')
        if not counted[worker] and not call('ZSCORE', P .. 'workers', worker) then
            counted[worker], size = true, size + 1
        end
    end
    return size
end

-- Return whether a run that just died alone, for the `in_a_row`th time, becomes a dead letter. If
-- other workers died too, it takes more deaths: see `deaths_allowed` in rows.py.
function S.is_condemned(row, in_a_row)
    if in_a_row < row.attempts_max then
        return false
    end
    S.flush()
    local others, workers = other_deaths(row.pk, in_a_row), math.max(1, fleet_size())
    local extra = math.floor(row.attempts_max * others / workers)
    local extra_max = row.attempts_max * (S.ATTEMPTS_FACTOR_MAX - 1)
    return in_a_row >= row.attempts_max + math.min(extra, extra_max)
end
