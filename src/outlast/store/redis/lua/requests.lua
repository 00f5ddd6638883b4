-- The commands that ask something of a run (Cancel, Retry, Resume, Decide), and those that start
-- its compensation (Undo, UndoChild). claim.lua abandons runs with a function of this file.
--
-- The stored field `undoing` has the verdict: how a run that is being compensated will end.

local UNKNOWN = {'!', 'unknown', ''}

local function refuse(status)
    return {'!', 'status', status}
end

local function json_or_null(value)
    return value and cjson.encode(value) or 'null'
end

-- Return the verdict of a run that is compensated because it was cancelled.
local function cancelled_verdict(reason)
    return '{"status": "cancelled", "value": null, "error": null, "reason": '
        .. json_or_null(reason) .. ', "failed_at": null}'
end

-- Return whether there may be something to compensate: an effect or a child.
local function may_need_compensation(row)
    S.flush()
    return row.dealt or call('EXISTS', P .. 'children:' .. row.id) == 1
end

-- Remember how the last execution ended, before a run that is parked or has ended becomes claimable
-- again.
function S.keep_end_of_execution(row)
    S.put(row, 'released', row.released or row.ended)
    S.put(row, 'released_as', row.released_as or row.status)
end

-- Queue a run for compensation, after which it ends with this verdict. Take it from its worker.
function S.begin_undo(row, verdict)
    if row.worker then
        S.put(row, 'released', S.now)
        S.put(row, 'released_as', 'undoing')
    else
        S.keep_end_of_execution(row)
    end
    S.set_status(row, 'queued')
    S.void_fence(row)
    S.put(row, 'undoing', verdict)
    S.put(row, 'due', S.now)
    S.put(row, 'ready', 1)
    S.put(row, 'interrupted', row.interrupted or S.now)
    S.put(row, 'deaths_in_a_row', 0)
    S.put(row, 'interruptions_in_a_row', 0)
    S.put(row, 'waits', '')
    for _, field in ipairs({'cancel', 'deadline', 'ended', 'error', 'reason', 'failed_at'}) do
        S.put(row, field, nil)
    end
    S.append_store_entry(row, 'undoing', verdict)
end

function S.Undo(command)
    local row = S.held_row(command.run, command.fence)
    if not row then
        row = S.row(command.run)
        local is_repeat = row and command.fence > 0 and row.fence == -command.fence
            and row.status == 'queued' and row.undoing == command.verdict
        return not is_repeat and S.FENCE
    end
    if row.undoing then
        return refuse('undoing')
    end
    S.begin_undo(row, command.verdict)
    return false
end

local UNHELD = {queued = true, waiting = true, parked = true, dead = true}

function S.UndoChild(command)
    local row = S.row_by_id(command.id)
    if not row or row.parent ~= command.parent then
        return UNKNOWN
    end
    local is_unfinished = not row.worker and row.started and not row.undoing
    local unheld = command.unheld and is_unfinished and UNHELD[row.status]
    if not unheld and (row.status ~= 'done' or not may_need_compensation(row)) then
        return row.status
    end
    S.begin_undo(row, cancelled_verdict(command.why))
    return 'queued'
end

local function contains(list, value)
    for _, other in ipairs(list) do
        if other == value then
            return true
        end
    end
    return false
end

-- Return whether a live worker could have claimed the run since it is due.
local function could_have_been_claimed(row)
    for _, id in ipairs(S.worker_ids()) do
        local worker = S.worker_row(id)
        local queues, workflows = cjson.decode(worker.queues), cjson.decode(worker.workflows)
        local is_able = worker.draining == '0' and tonumber(worker.started) <= row.due
            and contains(queues, row.queue)
            and (worker.workflows == '[]' or contains(workflows, row.workflow))
        if is_able and not S.cause_of_death(id, worker) then
            return true
        end
    end
    return false
end

-- Start the compensation of a run that was claimable for too long, if the store was awake and a
-- worker could have claimed it in that time.
function S.abandon_if_overdue(row)
    local since = math.max(row.due, S.awake_since())
    if since + row.abandon_after >= S.now or not could_have_been_claimed(row) then
        return
    end
    S.begin_undo(row, S.abandoned_verdict(row.id, S.now - since))
end

-- End a run as cancelled, without compensation.
local function settle_cancelled(row, why)
    S.set_status(row, 'cancelled')
    S.put(row, 'fence', -math.abs(row.fence))
    S.put(row, 'reason', row.cancel or why)
    S.put(row, 'cancel', row.cancel or why)
    S.put(row, 'ended', S.now)
    S.put(row, 'waits', '')
    S.put(row, 'ready', 0)
    S.wake_parent(row)
    return 'cancelled'
end

function S.Cancel(command)
    local row = S.row_by_id(command.id)
    if not row then
        return UNKNOWN
    end
    if S.ENDED[row.status] and row.status ~= 'dead' then
        return refuse(row.status)
    end
    if row.undoing then
        return refuse('undoing')
    end
    local at_rest = row.status == 'parked' or row.status == 'dead'
    if at_rest and may_need_compensation(row) then
        S.begin_undo(row, cancelled_verdict(row.cancel or command.why))
        return 'queued'
    end
    if at_rest or not row.started or (row.workflow == '' and not row.worker) then
        return settle_cancelled(row, command.why)
    end
    S.put(row, 'cancel', row.cancel or command.why)
    S.put(row, 'due', math.min(row.due, S.now))
    if row.status == 'queued' or row.status == 'waiting' then
        S.make_ready(row)
    end
    return row.status
end

local CLEARED_BY_REQUEUE = {
    'ended', 'reason', 'value', 'error', 'failed_at', 'left_by', 'left_at',
}

-- Make a run claimable that is parked or has ended. With `restart`, its time-out starts again and a
-- request to cancel is dropped. Otherwise the deadline moves by the time that it was suspended.
local function requeue(row, token, restart)
    local suspended = S.now - (row.ended or row.due)
    S.keep_end_of_execution(row)
    S.set_status(row, 'queued')
    S.void_fence(row)
    if row.undoing then
        S.put(row, 'deadline', nil)
    elseif restart then
        S.put(row, 'deadline', row.timeout and S.now + row.timeout)
    else
        S.put(row, 'deadline', row.deadline and row.deadline + suspended)
    end
    if restart then  -- otherwise keep a request that arrived while the run was being parked
        S.put(row, 'cancel', nil)
    end
    S.put(row, 'due', S.now)
    S.put(row, 'ready', 1)
    S.put(row, 'token', token)
    S.put(row, 'waits', '')
    S.put(row, 'lives', math.max(row.lives, 1))  -- even if never claimed, it gets an entry now
    for _, field in ipairs(CLEARED_BY_REQUEUE) do
        S.put(row, field, nil)
    end
    for _, field in ipairs({'deaths', 'deaths_in_a_row', 'interruptions_in_a_row', 'failures'}) do
        S.put(row, field, 0)
    end
end

-- Return whether a request with this token was applied before.
local function was_applied(row, kind, token)
    return S.hget(P .. 'asked:' .. row.pk, S.pair(kind, token))
end

-- Remember that a request with this token was applied.
local function remember(row, kind, token)
    S.hset(P .. 'asked:' .. row.pk, S.pair(kind, token), '1')
end

-- Return the JSON of a `retry` or `resume` entry.
local function request_json(from, was, undoing, command)
    local parts = {'"from": ' .. (from and S.text(from) or 'null'), '"was": ' .. cjson.encode(was)}
    if undoing ~= nil then
        parts[#parts + 1] = '"undoing": ' .. tostring(undoing)
    end
    parts[#parts + 1] = '"token": ' .. cjson.encode(command.token)
    if command.by then
        parts[#parts + 1] = '"by": ' .. cjson.encode(command.by)
    end
    return '{' .. table.concat(parts, ', ') .. '}'
end

-- Return a refusal if the state of its parent does not allow a child to be retried; nil otherwise.
local function refuse_for_parent(row, seen)
    if not row.parent or row.undoing or row.workflow == '(each)' then
        return nil
    end
    local parent = S.row_by_id(row.parent)
    if not parent then
        return {'!', 'parent', 'gone'}
    end
    if parent.undoing or S.ENDED[parent.status] then
        return {'!', 'parent', parent.undoing and 'undoing' or parent.status}
    end
    return seen and parent.last ~= seen and {'!', 'version', S.text(parent.last)} or nil
end

function S.Retry(command)
    local row = S.row_by_id(command.id)
    if not row then
        return UNKNOWN
    end
    if was_applied(row, 'retry', command.token) then
        return false
    end
    local ended_badly = row.status == 'failed' or row.status == 'cancelled' or row.status == 'dead'
    if not ended_badly and not (row.status == 'parked' and row.undoing) then
        return refuse(row.status)
    end
    local refused = refuse_for_parent(row, command.seen)
    if refused then
        return refused
    end
    local undoing = row.undoing ~= nil
    -- A compensation voids no entries: all that it compensates did happen.
    local from = not undoing and row.failed_at or nil
    local entry = request_json(from, row.status, undoing, command)
    remember(row, 'retry', command.token)
    requeue(row, command.token, true)
    S.append_store_entry(row, 'retry', entry)
    return false
end

function S.Resume(command)
    local row = S.row_by_id(command.id)
    if not row then
        return UNKNOWN
    end
    if was_applied(row, 'resume', command.token) then
        return false
    end
    if row.status ~= 'parked' and not (row.workflow == '(each)' and row.status == 'done') then
        return refuse(row.status)
    end
    local entry = request_json(row.failed_at, row.status, nil, command)
    remember(row, 'resume', command.token)
    requeue(row, command.token, false)
    S.append_store_entry(row, 'resume', entry)
    return false
end

function S.Decide(command)
    local row = S.row_by_id(command.id)
    if not row then
        return UNKNOWN
    end
    if was_applied(row, 'decision', command.token) then
        return false
    end
    if row.status ~= 'parked' then
        return refuse(row.status)
    end
    if row.last ~= command.seen then
        return {'!', 'version', S.text(row.last)}
    end
    remember(row, 'decision', command.token)
    requeue(row, command.token, false)
    S.append_store_entry(row, 'decision', command.decision, command.key)
    if command.verdict then
        S.begin_undo(row, command.verdict)
    end
    return false
end

-- Return the verdict of an abandoned run. The error is what `encode_error` in Python returns for an
-- Abandoned.
function S.abandoned_verdict(id, seconds)
    local rounded = string.format('%.1f', seconds)
    local with_commas = rounded:match('^%d+'):reverse():gsub('(%d%d%d)', '%1,'):reverse()
    local whole = with_commas:gsub('^,', '')
    local message = 'run ' .. "'" .. id .. "'" .. ' was abandoned: no worker took it for '
        .. whole .. rounded:match('%.%d$') .. ' seconds, and its effects were compensated.'
        .. ' Start it again with `outlast retry ' .. id .. '`.'
    local name, time = cjson.encode(id), S.text(seconds)
    local error = '{"type":"outlast.errors:Abandoned","message":' .. cjson.encode(message)
        .. ',"args":[' .. name .. ',' .. time
        .. '],"state":{"id":' .. name .. ',"reason":"","seconds":' .. time .. '}}'
    return '{"status": "failed", "value": null, "error": ' .. cjson.encode(error)
        .. ', "reason": null, "failed_at": null}'
end
