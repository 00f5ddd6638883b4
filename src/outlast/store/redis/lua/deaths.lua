-- The deaths of the fleet, and what they say of a run. Each is a member "RUN TIME WORKER" of a sorted set for every run that is
-- charged; one with the RUN 0 where none is.

local KEY = P .. 'worker_deaths'

-- Record that a worker died, and which runs are charged for it.
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

-- Since when deaths are weighed: the first of these of the run, but within bounds.
local function period(pk, in_a_row, all)
    local since, own = S.now - S.FLEET_SECONDS_MIN, 0
    for i = 1, #all, 2 do
        if own < in_a_row - 1 and all[i]:match('^%d+') == pk then
            since, own = math.min(since, tonumber(all[i + 1])), own + 1
        end
    end
    return math.max(since, S.now - S.FLEET_SECONDS)
end

-- How many workers died in the period of something else. The deaths for which one other run alone is charged count once.
local function other_deaths(pk, in_a_row)
    local all = call('ZREVRANGE', KEY, 0, -1, 'WITHSCORES')
    local since, deaths = period(pk, in_a_row, all), {}
    for i = 1, #all, 2 do
        local at = tonumber(all[i + 1])
        if at > since and at <= S.now then
            local run, death = all[i]:match('^(%d+) (.*)$')
            local it = deaths[death] or {charged = 0}
            it.charged, it.run, it.own = it.charged + 1, run, it.own or run == pk
            deaths[death] = it
        end
    end
    local others, counted = 0, {}
    for _, it in pairs(deaths) do
        if not it.own and not (it.charged == 1 and counted[it.run]) then
            others = others + 1
            counted[it.run] = it.charged == 1 and it.run ~= '0' or counted[it.run]
        end
    end
    return others
end

-- How many workers are enlisted, with those of this sweep.
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

-- Whether a death alone, the last of `in_a_row`, condemns the run, given what else died meanwhile: see the command Sweep.
function S.is_condemned(row, in_a_row)
    if in_a_row < row.attempts_max then
        return false
    end
    S.flush()
    local extra = math.floor(row.attempts_max * other_deaths(row.pk, in_a_row) / math.max(1, fleet_size()))
    return in_a_row >= row.attempts_max + math.min(extra, row.attempts_max * (S.ATTEMPTS_FACTOR_MAX - 1))
end
