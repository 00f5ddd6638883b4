-- Submit and SubmitMany.

S.WORKER = {'!', 'worker', 'not enlisted, or swept'}
S.DRAINING = {'!', 'draining', ''}

-- 0 for a worker, 1 for one that drains, nil for one that is not enlisted.
function S.standing(worker)
    return tonumber(S.peek(P .. 'worker:' .. worker, 'draining'))
end

local function submit_owned(verb)
    local draining = S.standing(verb.worker)
    if not draining then
        return S.WORKER
    end
    local row = S.row_of(verb.id)
    local own = row and row.token == verb.token and row.worker == verb.worker
    if draining == 1 then
        return own and {'1', S.sent(row)} or S.DRAINING
    end
    if row then
        return {own and '1' or '0', S.sent(row)}
    end
    verb.status, verb.fence, verb.lives, verb.ready = 'running', S.next_fence(), 1, 0
    verb.started, verb.due = S.now, S.now
    verb.deadline = verb.timeout and S.now + verb.timeout
    local flat = S.insert(verb)
    return {'1', cjson.encode({'pk', verb.pk, unpack(flat)})}
end

-- A refusal if so many more would be too many for the queue.
local function full(verb, count)
    local most = S.limit(verb.queue, 'depth_max') or verb.depth_max
    local depth = S.count(verb.queue, 'queued')
    return most and depth + count > most and {'!', 'depth', depth .. '/' .. S.text(most) .. '/' .. count}
end

local function enqueue(verb)
    verb.status, verb.due, verb.worker = 'queued', S.now + verb.delay, nil
    verb.ready = verb.delay <= 0 and 1 or 0
    S.insert(verb)
    return '1'
end

local function joined(verb, row)
    local untouched = row.token == verb.token and row.status == 'queued' and row.lives == 0
    return {untouched and '1' or '0', S.sent(row)}
end

function S.Submit(verb)
    if verb.worker then
        return submit_owned(verb)
    end
    local row = S.row_of(verb.id)
    return row and joined(verb, row) or full(verb, 1) or enqueue(verb)
end

-- Everything is checked before anything is written.
function S.SubmitMany(verb)
    local asked, new, queues = {}, {}, {}
    for _, run in ipairs(verb.runs) do
        local row = S.row_of(run.id)
        local before = row or asked[run.id]
        if before and (before.workflow ~= run.workflow or before.args ~= run.args) then
            return {'!', 'conflict', run.id}
        end
        if not before then
            if not new[run.queue] then
                new[run.queue] = {run = run, count = 0}
                queues[#queues + 1] = run.queue
            end
            new[run.queue].count = new[run.queue].count + 1
            asked[run.id] = run
        end
    end
    for _, queue in ipairs(queues) do
        local refused = full(new[queue].run, new[queue].count)
        if refused then
            return refused
        end
    end
    local outcomes = {'runs'}
    for _, run in ipairs(verb.runs) do
        local row = S.row_of(run.id)
        outcomes[#outcomes + 1] = row and joined(run, row) or enqueue(run)
    end
    return outcomes
end
