-- The commands Drain, RequestDrain, StoreDrainReport and RecordDurations (which samples how long
-- steps take). workers.lua opens and closes the report of a draining worker that died.

local NOT_STARTED = 'its worker drains before it began'

local function key(worker)
    return P .. 'drain:' .. worker
end

-- Delete the report of a worker's drain, and its recoveries.
local function delete_report(worker)
    local number = S.hget(key(worker), 'number')
    if number then
        S.zrem(P .. 'drains', tonumber(number), worker)
        S.delete_key(key(worker))
    end
    S.delete_key(P .. 'recoveries:' .. worker)
end

-- Delete the oldest reports beyond DRAINS_MAX.
local function delete_oldest_reports()
    S.flush()
    for _, worker in ipairs(call('ZREVRANGE', P .. 'drains', S.DRAINS_MAX, -1)) do
        delete_report(worker)
    end
end

local function create_report(worker, fields)
    local number = S.hincr(P .. 'counters', 'drain', 1)
    S.zadd(P .. 'drains', number, worker)
    S.hset(key(worker), 'number', S.text(number))
    S.hset(key(worker), 'began', S.text(S.now))
    for field, value in pairs(fields) do
        S.hset(key(worker), field, value)
    end
end

-- Open the report of a registered worker's drain, unless there is one.
function S.open_report(worker, reason)
    if S.hget(key(worker), 'number') then
        return
    end
    S.flush()
    local row = S.worker_row(worker)
    local held = call('ZCARD', P .. 'held:' .. worker)
    create_report(worker, {host = row.host, pid = row.pid, reason = reason, held = S.text(held)})
    delete_oldest_reports()
end

-- Release what a worker holds under fences that are not in `keep`, without an interruption. Return
-- the ids by pk, after the tag 'ids'.
local function release_unstarted(worker, keep)
    local kept, ids = {}, {'ids'}
    for _, fence in ipairs(keep) do
        kept[fence] = true
    end
    for _, row in ipairs(S.rows_held_by(worker)) do
        if not kept[row.fence] then
            S.reset_counts_after_progress(row)
            S.release_run(row, 'queued', S.now, NOT_STARTED)
            ids[#ids + 1] = row.id
        end
    end
    return ids
end

function S.Drain(command)
    local draining = S.draining_flag(command.worker)
    if not draining then
        return S.WORKER
    end
    if draining == 0 then
        S.hset(P .. 'worker:' .. command.worker, 'draining', '1')
        delete_report(command.worker)  -- of an earlier drain under the same worker id
    end
    local released = release_unstarted(command.worker, command.keep)
    S.open_report(command.worker, command.reason)
    S.must_notify = S.must_notify or #released > 1
    return released
end

function S.RequestDrain(command)
    if not S.draining_flag(command.worker) then
        return S.WORKER
    end
    local row = P .. 'worker:' .. command.worker
    if not S.hget(row, 'asked') then
        S.hset(row, 'asked', command.why)
    end
    return false
end

function S.StoreDrainReport(command)
    if not S.hget(key(command.worker), 'number') then
        create_report(command.worker, {host = '', pid = '0', reason = '', held = '0'})
        delete_oldest_reports()
    end
    if not S.hget(key(command.worker), 'swept') then
        S.hset(key(command.worker), 'ended', S.text(S.now))
        S.hset(key(command.worker), 'report', command.report)
    end
    return false
end

-- Close the report of a worker that died while it drained, unless the worker closed it.
function S.close_report_of_dead_worker(worker, left, why, seen)
    if S.hget(key(worker), 'number') and not S.hget(key(worker), 'ended') then
        local ids = {}
        for i, id in ipairs(left) do
            ids[i] = cjson.encode(id)
        end
        local report = '{"cut_short": true, "left": [' .. table.concat(ids, ', ')
            .. '], "why": ' .. cjson.encode(why) .. ', "seen": ' .. S.text(seen) .. '}'
        S.hset(key(worker), 'ended', S.text(S.now))
        S.hset(key(worker), 'report', report)
        S.hset(key(worker), 'swept', '1')
    end
end

function S.RecordDurations(command)
    local touched = {}
    for _, sample in ipairs(command.samples) do
        local pair = S.pair(sample[1], sample[2])
        local list = P .. 'durations:' .. pair
        if not S.hget(P .. 'measured', pair) then
            S.hset(P .. 'measured', pair, cjson.encode({sample[1], sample[2]}))
        end
        S.append_item(list, S.text(sample[3]))
        touched[list] = true
    end
    for list in pairs(touched) do
        S.truncate(list, S.DURATIONS_MAX)
    end
    return false
end
