-- The commands Submit and SubmitMany, and what commands check about the worker that sends them.

S.WORKER = {'!', 'worker', 'not registered, or swept'}
S.DRAINING = {'!', 'draining', ''}

-- Return 1 if a worker drains and 0 if not; nil if it is not registered.
function S.draining_flag(worker)
    return tonumber(S.read_field(P .. 'worker:' .. worker, 'draining'))
end

-- Return the host and the pid of a registered worker, as texts.
function S.host_and_pid(worker)
    local key = P .. 'worker:' .. worker
    if rawget(S, 'hget') then
        return S.hget(key, 'host'), S.hget(key, 'pid')
    end
    return unpack(call('HMGET', key, 'host', 'pid'))
end

-- Insert a run that its own worker executes at once, without a queue.
local function submit_owned(command)
    local draining = S.draining_flag(command.worker)
    if not draining then
        return S.WORKER
    end
    local row = S.row_by_id(command.id)
    local own = row and row.token == command.token and row.worker == command.worker
    if draining == 1 then
        return own and {'1', S.encode_row(row)} or S.DRAINING
    end
    if row then
        return {own and '1' or '0', S.encode_row(row)}
    end
    command.status, command.fence, command.lives, command.ready = 'running', S.next_fence(), 1, 0
    command.started, command.due = S.now, S.now
    command.claimed, command.claimed_by = S.now, command.worker
    command.claimed_host, command.claimed_pid = S.host_and_pid(command.worker)
    command.deadline = command.timeout and S.now + command.timeout
    local flat = S.insert_run(command)
    return {'1', cjson.encode({'pk', command.pk, unpack(flat)})}
end

-- Return a refusal if the queue is too full for `count` more runs.
local function refuse_if_full(command, count)
    local most = S.queue_limit(command.queue, 'depth_max') or command.depth_max
    local depth = S.status_count(command.queue, 'queued')
    local is_full = most and depth + count > most
    return is_full and {'!', 'depth', depth .. '/' .. S.text(most) .. '/' .. count}
end

local function enqueue(command)
    command.status, command.due, command.worker = 'queued', S.now + command.delay, nil
    command.ready = command.delay > 0 and 0 or command.key and -3 or 1
    S.insert_run(command)
    return '1'
end

-- Return the outcome for a run that exists already. It is a repeat if this token submitted the run
-- and no worker has claimed it since.
local function answer_existing(command, row)
    local is_repeat = row.token == command.token and row.status == 'queued' and row.lives == 0
    return {is_repeat and '1' or '0', S.encode_row(row)}
end

-- Return whether a run becomes this submission. A repeat of the last one changes nothing.
local function may_replace(command, row)
    return command.replace and row.status == 'queued' and row.lives == 0 and not row.parent
        and row.token ~= command.token and row.workflow == command.workflow
        and row.queue == command.queue and row.key == command.key
end

local REPLACED = {'args', 'token', 'seed', 'priority', 'timeout', 'abandon_after', 'by'}

local function replace(command, row)
    for _, field in ipairs(REPLACED) do
        S.put(row, field, command[field])
    end
    S.put(row, 'due', S.now + command.delay)
    S.put(row, 'turn', nil)
    S.put(row, 'ready', command.delay > 0 and 0 or row.key and -3 or 1)
    if row.key then
        S.note_key(row.queue, row.key, 0)
    end
    return '1'
end

function S.Submit(command)
    if command.worker then
        return submit_owned(command)
    end
    local row = S.row_by_id(command.id)
    if row and may_replace(command, row) then
        return replace(command, row)
    end
    return row and answer_existing(command, row) or refuse_if_full(command, 1) or enqueue(command)
end

-- Check all runs before inserting the first one.
function S.SubmitMany(command)
    local earlier, new, queues = {}, {}, {}
    for _, run in ipairs(command.runs) do
        local row = S.row_by_id(run.id)
        local before = row or earlier[run.id]
        if before and (before.workflow ~= run.workflow or before.args ~= run.args) then
            return {'!', 'conflict', run.id}
        end
        if not before then
            if not new[run.queue] then
                new[run.queue] = {run = run, count = 0}
                queues[#queues + 1] = run.queue
            end
            new[run.queue].count = new[run.queue].count + 1
            earlier[run.id] = run
        end
    end
    for _, queue in ipairs(queues) do
        local refused = refuse_if_full(new[queue].run, new[queue].count)
        if refused then
            return refused
        end
    end
    local outcomes = {'runs'}
    for _, run in ipairs(command.runs) do
        local row = S.row_by_id(run.id)
        outcomes[#outcomes + 1] = row and answer_existing(run, row) or enqueue(run)
    end
    return outcomes
end
