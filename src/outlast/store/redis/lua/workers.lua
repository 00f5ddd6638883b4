-- The commands RegisterWorker, Renew, DeregisterWorker and Sweep: leases, dead workers, and what
-- happens to their runs. The command Sweep explains the rules.
--
-- Keys: `worker:<id>` is a worker's row. `workers` lists all registered workers. `leases` orders
-- them by the length of their lease and `leased` by its end. `present` has the workers that the
-- server knows by their connection. `pulse` has the last sign of life of any worker.

local RAN_OUT = "its worker's lease ran out"
local OUTAGE = 'the store was away, and its worker did not come back'

local function key(worker)
    return P .. 'worker:' .. worker
end

-- Return the row of a worker; empty if it is not registered.
function S.worker_row(worker)
    return S.hgetall(key(worker))
end

-- Return the ids of all registered workers, sorted.
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

local function set_lease_end(worker, until_)
    local was = tonumber(S.hget(key(worker), 'lease_until'))
    if was ~= until_ then
        if was then
            S.zrem(P .. 'leased', was, worker)
        end
        S.zadd(P .. 'leased', until_, worker)
    end
    S.hset(key(worker), 'lease_until', S.text(until_))
end

-- Start a lease of this length now.
local function renew(worker, lease)
    set_lease(worker, lease)
    set_lease_end(worker, S.now + lease)
    S.hset(key(worker), 'renewed', S.text(S.now))
end

-- Return since when the store has been awake: since when signs of life came without a gap of more
-- than half the shortest lease. If the clock was set back, the store is awake since now.
function S.awake_since()
    S.flush()
    local pulse = P .. 'pulse'
    local last = tonumber(S.hget(pulse, 'beat')) or 0
    local since = tonumber(S.hget(pulse, 'awake')) or 0
    local shortest = call('ZRANGE', P .. 'leases', 0, 0, 'WITHSCORES')[2]
    local gap = S.now - last
    return gap >= 0 and gap <= (tonumber(shortest) or 0) / 2 and since or S.now
end

-- Shorten leases that end later than a whole lease from now: the clock was set back since they
-- began.
local function shorten_leases()
    for _, worker in ipairs(call('ZRANGEBYSCORE', P .. 'leased', S.text(S.now), '+inf')) do
        local lease = tonumber(S.hget(key(worker), 'lease'))
        local until_ = tonumber(S.hget(key(worker), 'lease_until'))
        if lease and until_ and until_ > S.now + lease + 1 then  -- 1 is for rounding
            set_lease_end(worker, S.now + lease)
        end
    end
end

-- Record a sign of life. Return since when the store has been awake.
local function record_sign_of_life()
    local since = S.awake_since()
    if since == S.now then
        shorten_leases()
    end
    S.hset(P .. 'pulse', 'beat', S.text(S.now))
    S.hset(P .. 'pulse', 'awake', S.text(since))
    -- After a restart or a failover, a missing connection proves nothing until every worker has
    -- had time to reconnect: see `is_gone`.
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

-- If a worker is connected, note that its connection shows whether it is alive.
local function note_present(worker)
    local present = P .. 'present'
    local connected = S.header.server ~= '' and call('PUBSUB', 'NUMSUB', channel(worker))[2] > 0
    if connected and call('SISMEMBER', present, worker) == 0 then
        S.write({'SREM', present, worker}, 'SADD', present, worker)
    end
end

function S.RegisterWorker(command)
    local row = key(command.worker)
    if not S.hget(row, 'started') then
        S.zadd(P .. 'workers', 0, command.worker)
        S.hset(row, 'host', command.host)
        S.hset(row, 'pid', S.text(command.pid))
        S.hset(row, 'started', S.text(S.now))
        S.hset(row, 'draining', '0')
    end
    renew(command.worker, command.lease)
    S.hset(row, 'queues', command.queues)
    S.hset(row, 'workflows', command.workflows)
    S.hset(row, 'concurrency', S.text(command.concurrency))
    note_present(command.worker)
    record_sign_of_life()
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
    record_sign_of_life()
    return false
end

-- Delete everything about a worker.
local function delete_worker(worker)
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

-- Return the rows of the runs that a worker holds, by pk.
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
    delete_worker(command.worker)
    return false
end

-- Return whether a worker's connection is gone for good: the calling process has missed it for a
-- while, the server has been the same for a whole lease, and the connection is missing now.
local function is_gone(worker, row)
    local pulse = P .. 'pulse'
    if not S.missing_workers[worker] or S.hget(pulse, 'server') ~= S.header.server then
        return false
    end
    local known_for = S.now - tonumber(S.hget(pulse, 'server_since'))
    return known_for >= tonumber(row.lease) and call('PUBSUB', 'NUMSUB', channel(worker))[2] == 0
end

-- Raise an error that names the worker if its row is damaged.
local function check_numbers(worker, row)
    for _, field in ipairs({'lease', 'lease_until', 'renewed'}) do
        if not tonumber(row[field]) then
            error('worker ' .. worker .. ': ' .. field .. ' is not a number')
        end
    end
end

-- Return why a worker seems dead; nil if it does not. A lease that ran out is no proof: Sweep also
-- requires that the store was awake.
function S.cause_of_death(worker, row)
    if not row.started then
        return 'its worker is no longer registered'
    end
    check_numbers(worker, row)
    if is_gone(worker, row) then
        return 'its worker died'
    end
    return tonumber(row.lease_until) <= S.now and RAN_OUT or nil
end

-- Return when a dead worker was last seen, and the evidence. No heartbeats are stored, so a worker
-- that lost its connection was last seen now, or when its lease ended.
local function last_seen(why, row)
    if not row.started then
        return S.now, 'sweep'
    end
    if why == RAN_OUT then
        return math.min(S.now, tonumber(row.renewed)), 'lease'
    end
    return math.min(S.now, tonumber(row.lease_until)), 'lock'
end

-- Return the part of an entry's JSON that says when a worker was last seen, and the evidence.
function S.seen_json(seen, by)
    return ',"seen":' .. S.text(seen) .. ',"by":"' .. by .. '"'
end

-- Return whether the server has started since a worker last renewed its lease. Then the worker may
-- have ended because it could not write.
local function ended_in_outage(row)
    local since = tonumber(S.hget(P .. 'pulse', 'server_since'))
    return since ~= nil and tonumber(row.renewed) < since
end

-- Return the number of runs in `parents` (id -> id of the parent) that are this run or one of its
-- ancestors.
local function count_with_ancestors(id, parents)
    local seen, count = {}, 0
    while id and parents[id] ~= nil and not seen[id] do
        seen[id], count = true, count + 1
        id = parents[id]
    end
    return count
end

-- Release a run whose worker died. Return its status. Unless it is innocent, it is charged: the
-- death counts in `deaths_in_a_row`, and a death alone may make it a dead letter.
local function release_after_death(row, why, innocent, alone, command)
    S.put(row, 'deaths', row.deaths + 1)
    local in_a_row, pause, status = 0, 0, 'queued'
    if not innocent then
        local counts = alone or not S.is_suspect(row.deaths_in_a_row)
        in_a_row = row.deaths_in_a_row + (counts and 1 or 0)
    end
    S.put(row, 'deaths_in_a_row', in_a_row)
    if S.is_suspect(in_a_row) then
        local doublings = math.min(in_a_row - S.SUSPECT_DEATHS, 60)
        pause = math.min(command.backoff * 2 ^ doublings, command.backoff_max)
    else
        S.put(row, 'interrupted', row.interrupted or S.now)
    end
    if alone and not innocent and S.is_condemned(row, in_a_row) then
        status = 'dead'
        why = 'died ' .. S.count_in_words(in_a_row)
            .. ' without recording anything; the last time: ' .. why
    end
    return S.release_run(row, status, S.now + pause, why)
end

-- Take all runs from a dead worker. Return their ids, and the ids of those that are dead letters
-- now.
local function take_runs(worker, why, draining, command, seen, by)
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
            status = S.interrupt_run(row, S.now, why .. ' while it was draining', true, seen, by)
        elseif why == OUTAGE then
            status = S.interrupt_run(row, S.now, why, false, seen, by)
        else
            local alone = count == count_with_ancestors(row.id, parents)
            local innocent = progress or is_parent[row.id]
            if not innocent then
                charged[#charged + 1] = row.pk
            end
            status = release_after_death(row, why, innocent, alone, command)
            local value = '{"worker":' .. cjson.encode(worker) .. ',"why":' .. cjson.encode(why)
                .. S.seen_json(seen, by) .. '}'
            S.append_store_entry(row, 'death', value)
        end
        ids[#ids + 1] = row.id
        if status == 'dead' then
            dead[#dead + 1] = row.id
        end
    end
    if not draining and why ~= OUTAGE then
        S.record_death(worker, charged)
    end
    return ids, dead
end

-- Return the ids of all registered workers, and of workers that hold runs without being registered.
local function all_workers()
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
    local awake = record_sign_of_life()
    for _, worker in ipairs(all_workers()) do
        local row = S.worker_row(worker)
        local why = S.cause_of_death(worker, row)
        if why and not (why == RAN_OUT and awake + tonumber(row.lease) > S.now) then
            local draining = row.draining == '1'
            if row.started and not draining and ended_in_outage(row) then
                why = OUTAGE
            end
            if draining then
                -- Without effect if there is a report. There is none if only a Renew said that the
                -- worker drains.
                S.open_report(worker, '')
            end
            local seen, by = last_seen(why == OUTAGE and RAN_OUT or why, row)
            local ids, dead_ids = take_runs(worker, why, draining, command, seen, by)
            extend(swept, ids)
            extend(dead, dead_ids)
            if draining then
                S.close_report_of_dead_worker(worker, ids, why, seen)
            end
            delete_worker(worker)
            workers[#workers + 1] = worker
            S.must_notify = true
        end
    end
    return {swept, dead, workers}
end
