-- Workers: who is here, who left, who is dead, and what becomes of their runs.

local RAN_OUT = "its worker's lease ran out"
local AWAY = 'the store was away, and its worker did not come back'

local function key(worker)
    return P .. 'worker:' .. worker
end

function S.worker_row(worker)
    return S.hgetall(key(worker))
end

function S.worker_ids()
    S.flush()
    return call('ZRANGE', P .. 'workers', 0, -1)
end

local function set_lease(worker, lease)
    local was = tonumber(S.hget(key(worker), 'lease'))
    if was ~= lease then
        if was then
            S.zrem(P .. 'leases', was, worker)
        end
        S.zadd(P .. 'leases', lease, worker)
    end
    S.hset(key(worker), 'lease', S.text(lease))
end

local function set_until(worker, until_)
    local was = tonumber(S.hget(key(worker), 'lease_until'))
    if was ~= until_ then
        if was then
            S.zrem(P .. 'leased', was, worker)
        end
        S.zadd(P .. 'leased', until_, worker)
    end
    S.hset(key(worker), 'lease_until', S.text(until_))
end

local function renew(worker, lease)
    set_lease(worker, lease)
    set_until(worker, S.now + lease)
    S.hset(key(worker), 'renewed', S.text(S.now))
end

-- Since when signs of life come without a gap of more than half a lease, either way.
function S.awake_since()
    S.flush()
    local pulse = P .. 'pulse'
    local beat = tonumber(S.hget(pulse, 'beat')) or 0
    local since = tonumber(S.hget(pulse, 'awake')) or 0
    local shortest = call('ZRANGE', P .. 'leases', 0, 0, 'WITHSCORES')[2]
    local gap = S.now - beat
    return gap >= 0 and gap <= (tonumber(shortest) or 0) / 2 and since or S.now
end

-- A sign of life. Since when such signs came without a gap.
local function beat()
    local since = S.awake_since()
    if since == S.now then  -- after a jump of the clock no lease is longer than a lease
        for _, worker in ipairs(call('ZRANGEBYSCORE', P .. 'leased', S.text(S.now), '+inf')) do
            local lease, until_ = tonumber(S.hget(key(worker), 'lease')), tonumber(S.hget(key(worker), 'lease_until'))
            if lease and until_ and until_ > S.now + lease + 1 then
                set_until(worker, S.now + lease)
            end
        end
    end
    S.hset(P .. 'pulse', 'beat', S.text(S.now))
    S.hset(P .. 'pulse', 'awake', S.text(since))
    -- Another server than the last time, or the same one started anew: who is connected says nothing until everybody had the time
    -- to connect.
    local server = S.hget(P .. 'pulse', 'server')
    if S.header.server ~= '' and server ~= S.header.server then
        S.hset(P .. 'pulse', 'server', S.header.server)
        S.hset(P .. 'pulse', 'server_since', server and S.text(S.now) or '0')
    end
    return since
end

local function channel(worker)
    return P .. 'alive:' .. S.header.db .. ':' .. worker
end

-- A worker that is connected: from now on that tells of it.
local function note_present(worker)
    local present = P .. 'present'
    local connected = S.header.server ~= '' and call('PUBSUB', 'NUMSUB', channel(worker))[2] > 0
    if connected and call('SISMEMBER', present, worker) == 0 then
        S.write({'SREM', present, worker}, 'SADD', present, worker)
    end
end

function S.RegisterWorker(command)
    local it = key(command.worker)
    if not S.hget(it, 'started') then
        S.zadd(P .. 'workers', 0, command.worker)
        S.hset(it, 'host', command.host)
        S.hset(it, 'pid', S.text(command.pid))
        S.hset(it, 'started', S.text(S.now))
        S.hset(it, 'draining', '0')
    end
    renew(command.worker, command.lease)
    S.hset(it, 'queues', command.queues)
    S.hset(it, 'workflows', command.workflows)
    S.hset(it, 'concurrency', S.text(command.concurrency))
    note_present(command.worker)
    beat()
    return false
end

function S.Renew(command)
    if not S.draining_flag(command.worker) then
        return {'!', 'worker', 'swept'}
    end
    renew(command.worker, command.lease)
    if command.draining then
        S.hset(key(command.worker), 'draining', '1')
    end
    beat()
    return false
end

local function strike_off(worker)
    S.flush()
    for _, name in ipairs({'workers', 'leases', 'leased'}) do
        local score = call('ZSCORE', P .. name, worker)
        if score then
            S.zrem(P .. name, score, worker)
        end
    end
    S.delete_key(key(worker))
    if call('SISMEMBER', P .. 'present', worker) == 1 then
        S.write({'SADD', P .. 'present', worker}, 'SREM', P .. 'present', worker)
    end
end

-- What a worker holds, by number.
function S.rows_held_by(worker)
    S.flush()
    local found = {}
    for _, member in ipairs(call('ZRANGE', P .. 'held:' .. worker, 0, -1)) do
        found[#found + 1] = S.row(member:match('%d+$'))
    end
    table.sort(found, function(one, other) return tonumber(one.pk) < tonumber(other.pk) end)
    return found
end

function S.DeregisterWorker(command)
    local draining = S.draining_flag(command.worker) == 1
    for _, row in ipairs(S.rows_held_by(command.worker)) do
        S.reset_counts_after_progress(row)
        S.interrupt_run(row, S.now, 'its worker left', draining, S.now, 'leave')
    end
    strike_off(command.worker)
    return false
end

-- Whether its connection is gone for good: the caller has missed it for some time, and here it is not either.
local function is_gone(worker, it)
    local pulse = P .. 'pulse'
    if not S.missing_workers[worker] or S.hget(pulse, 'server') ~= S.header.server then
        return false
    end
    local known_for = S.now - tonumber(S.hget(pulse, 'server_since'))
    return known_for >= tonumber(it.lease) and call('PUBSUB', 'NUMSUB', channel(worker))[2] == 0
end

-- Raise an error that names the worker if a number of its row is none.
local function check(worker, it)
    for _, field in ipairs({'lease', 'lease_until', 'renewed'}) do
        if not tonumber(it[field]) then
            error('worker ' .. worker .. ': ' .. field .. ' is not a number')
        end
    end
end

-- Why a worker seems dead, nil if it does not. A lease that ran out is no proof: see Sweep.
function S.cause_of_death(worker, it)
    if not it.started then
        return 'its worker is no longer registered'
    end
    check(worker, it)
    if is_gone(worker, it) then
        return 'its worker died'
    end
    return tonumber(it.lease_until) <= S.now and RAN_OUT or nil
end

-- The last sign of life of a dead worker, and what told it. No heartbeat is on record: who is not connected was seen now, while it had a lease.
local function last_seen(why, it)
    if not it.started then
        return S.now, 'sweep'
    end
    if why == RAN_OUT then
        return math.min(S.now, tonumber(it.renewed)), 'lease'
    end
    return math.min(S.now, tonumber(it.lease_until)), 'lock'
end

function S.seen_json(seen, by)
    return ',"seen":' .. S.text(seen) .. ',"by":"' .. by .. '"'
end

-- Whether the server was started since a worker's last sign of life. Then it may have ended because it could not write.
local function was_away(it)
    local since = tonumber(S.hget(P .. 'pulse', 'server_since'))
    return since ~= nil and tonumber(it.renewed) < since
end

-- A run and its ancestors, as far as they are here: how many.
local function line(id, parents)
    local seen, count = {}, 0
    while id and parents[id] ~= nil and not seen[id] do
        seen[id], count = true, count + 1
        id = parents[id]
    end
    return count
end

-- Charge a run for the death of its worker unless it is innocent. Returns its status after it.
local function die(row, why, innocent, alone, command)
    S.put(row, 'deaths', row.deaths + 1)
    local in_a_row, pause, status = 0, 0, 'queued'
    if not innocent then
        in_a_row = row.deaths_in_a_row + ((alone or not S.is_suspect(row.deaths_in_a_row)) and 1 or 0)
    end
    S.put(row, 'deaths_in_a_row', in_a_row)
    if S.is_suspect(in_a_row) then
        pause = math.min(command.backoff * 2 ^ math.min(in_a_row - S.SUSPECT_DEATHS, 60), command.backoff_max)
    else
        S.put(row, 'interrupted', row.interrupted or S.now)
    end
    if alone and not innocent and S.is_condemned(row, in_a_row) then
        status = 'dead'
        why = 'died ' .. S.count_in_words(in_a_row) .. ' without recording anything; the last time: ' .. why
    end
    return S.release_run(row, status, S.now + pause, why)
end

-- Take everything from a dead worker: ids, and those of them that are dead letters now.
local function take(worker, why, draining, command, seen, by)
    local held, parents, is_parent, count = S.rows_held_by(worker), {}, {}, 0
    for _, row in ipairs(held) do
        parents[row.id] = row.parent or false
        is_parent[row.parent or ''] = row.parent ~= nil
        count = count + 1
    end
    local ids, dead, charged = {}, {}, {}
    for _, row in ipairs(held) do
        local progress, status = S.reset_counts_after_progress(row), nil
        if draining then
            status = S.interrupt_run(row, S.now, why .. ', while it was draining', true, seen, by)
        elseif why == AWAY then
            status = S.interrupt_run(row, S.now, why, false, seen, by)
        else
            local alone = count == line(row.id, parents)
            if not progress and not is_parent[row.id] then
                charged[#charged + 1] = row.pk
            end
            status = die(row, why, progress or is_parent[row.id], alone, command)
            local said = '{"worker":' .. cjson.encode(worker) .. ',"why":' .. cjson.encode(why) .. S.seen_json(seen, by) .. '}'
            S.append_store_entry(row, 'death', said)
        end
        ids[#ids + 1] = row.id
        if status == 'dead' then
            dead[#dead + 1] = row.id
        end
    end
    if not draining and why ~= AWAY then
        S.record_death(worker, charged)
    end
    return ids, dead
end

-- Everybody who is enlisted, and who holds something without being so.
local function holders()
    S.flush()
    local found = S.worker_ids()
    local known = {}
    for _, worker in ipairs(found) do
        known[worker] = true
    end
    for _, worker in ipairs(call('SMEMBERS', P .. 'holders')) do
        if not known[worker] then
            found[#found + 1] = worker
        end
    end
    return found
end

local function extend(list, more)
    for _, value in ipairs(more) do
        list[#list + 1] = value
    end
end

function S.Sweep(command)
    local swept, dead, workers = {}, {}, {}
    local awake = beat()
    for _, worker in ipairs(holders()) do
        local it = S.worker_row(worker)
        local why = S.cause_of_death(worker, it)
        if why and not (why == RAN_OUT and awake + tonumber(it.lease) > S.now) then
            local draining = it.draining == '1'
            if it.started and not draining and was_away(it) then
                why = AWAY
            end
            if draining then
                S.open_report(worker, '')  -- it has one, unless a mere renewal said that it drains
            end
            local seen, by = last_seen(why == AWAY and RAN_OUT or why, it)
            local ids, letters = take(worker, why, draining, command, seen, by)
            extend(swept, ids)
            extend(dead, letters)
            if draining then
                S.close_report_of_dead_worker(worker, ids, why, seen)
            end
            strike_off(worker)
            workers[#workers + 1] = worker
            S.must_notify = true
        end
    end
    return {swept, dead, workers}
end
