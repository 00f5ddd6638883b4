-- What people ask of a run: to end, to go on, and what became of an effect. And how a run comes to be undone.

local UNKNOWN = {'!', 'unknown', ''}

local function refuse(status)
    return {'!', 'status', status}
end

local function null(value)
    return value and cjson.encode(value) or 'null'
end

local function cancelled(reason)
    return '{"status": "cancelled", "value": null, "error": null, "reason": ' .. null(reason) .. ', "failed_at": null}'
end

-- Whether there may be something to undo.
local function has_dealt(row)
    S.flush()
    return row.dealt or call('EXISTS', P .. 'children:' .. row.id) == 1
end

-- A run that has ended, or is parked, is claimable again: how its last execution ended stays known.
function S.keep_end_of_execution(row)
    S.put(row, 'released', row.released or row.ended)
    S.put(row, 'released_as', row.released_as or row.status)
end

-- From now on the run is being undone: queued, and nobody's.
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
        local again = row and command.fence > 0 and row.fence == -command.fence and row.status == 'queued' and row.undoing == command.verdict
        return not again and S.FENCE
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
    local left_alone = not row.worker and row.started and not row.undoing
    local unheld = command.unheld and left_alone and UNHELD[row.status]
    if not unheld and (row.status ~= 'done' or not has_dealt(row)) then
        return row.status
    end
    S.begin_undo(row, cancelled(command.why))
    return 'queued'
end

-- A worker that is alive has claimed from the run's queue, and for its workflow, since the run is due.
local function somebody_could(row)
    for _, worker in ipairs(S.worker_ids()) do
        local it = S.worker_row(worker)
        local queues, workflows = cjson.decode(it.queues), cjson.decode(it.workflows)
        local function has(list, value)
            for _, other in ipairs(list) do
                if other == value then
                    return true
                end
            end
            return false
        end
        local able = it.draining == '0' and tonumber(it.started) <= row.due and has(queues, row.queue)
        if able and (it.workflows == '[]' or has(workflows, row.workflow)) and not S.cause_of_death(worker, it) then
            return true
        end
    end
    return false
end

-- Undo a run that nobody took for too long, if somebody was there who could have.
function S.abandon_if_overdue(row)
    local since = math.max(row.due, S.awake_since())
    if since + row.abandon_after >= S.now or not somebody_could(row) then
        return
    end
    S.begin_undo(row, S.abandoned_verdict(row.id, S.now - since))
end

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
    if at_rest and has_dealt(row) then
        S.begin_undo(row, cancelled(row.cancel or command.why))
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

-- `again`: from the start of its time, and whatever was asked before.
local function requeue(row, token, again)
    local stood = S.now - (row.ended or row.due)
    S.keep_end_of_execution(row)
    S.set_status(row, 'queued')
    S.void_fence(row)
    if row.undoing then
        S.put(row, 'deadline', nil)
    elseif again then
        S.put(row, 'deadline', row.timeout and S.now + row.timeout)
    else
        S.put(row, 'deadline', row.deadline and row.deadline + stood)
    end
    if again then
        S.put(row, 'cancel', nil)  -- else it may have come while the run was being parked
    end
    S.put(row, 'due', S.now)
    S.put(row, 'ready', 1)
    S.put(row, 'token', token)
    S.put(row, 'waits', '')
    S.put(row, 'lives', math.max(row.lives, 1))  -- it has a journal
    for _, field in ipairs({'ended', 'reason', 'value', 'error', 'failed_at', 'left_by', 'left_at'}) do
        S.put(row, field, nil)
    end
    for _, field in ipairs({'deaths', 'deaths_in_a_row', 'interruptions_in_a_row', 'failures'}) do
        S.put(row, field, 0)
    end
end

-- Whether this was asked before; from now on it was.
local function asked(row, kind, token)
    return S.hget(P .. 'asked:' .. row.pk, S.pair(kind, token))
end

local function ask(row, kind, token)
    S.hset(P .. 'asked:' .. row.pk, S.pair(kind, token), '1')
end

local function said(from, was, undoing, token)
    local parts = {'"from": ' .. (from and S.text(from) or 'null'), '"was": ' .. cjson.encode(was)}
    if undoing ~= nil then
        parts[#parts + 1] = '"undoing": ' .. tostring(undoing)
    end
    parts[#parts + 1] = '"token": ' .. cjson.encode(token)
    return '{' .. table.concat(parts, ', ') .. '}'
end

-- Why a child cannot be retried without its parent; nil if it can.
local function parent_refuses(row, seen)
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
    if asked(row, 'retry', command.token) then
        return false
    end
    local ended_badly = row.status == 'failed' or row.status == 'cancelled' or row.status == 'dead'
    if not ended_badly and not (row.status == 'parked' and row.undoing) then
        return refuse(row.status)
    end
    local refused = parent_refuses(row, command.seen)
    if refused then
        return refused
    end
    local undoing = row.undoing ~= nil
    local from = not undoing and row.failed_at or nil  -- what is being undone is all still true
    local entry = said(from, row.status, undoing, command.token)
    ask(row, 'retry', command.token)
    requeue(row, command.token, true)
    S.append_store_entry(row, 'retry', entry)
    return false
end

function S.Resume(command)
    local row = S.row_by_id(command.id)
    if not row then
        return UNKNOWN
    end
    if asked(row, 'resume', command.token) then
        return false
    end
    if row.status ~= 'parked' and not (row.workflow == '(each)' and row.status == 'done') then
        return refuse(row.status)
    end
    local entry = said(row.failed_at, row.status, nil, command.token)
    ask(row, 'resume', command.token)
    requeue(row, command.token, false)
    S.append_store_entry(row, 'resume', entry)
    return false
end

function S.Decide(command)
    local row = S.row_by_id(command.id)
    if not row then
        return UNKNOWN
    end
    if asked(row, 'decision', command.token) then
        return false
    end
    if row.status ~= 'parked' then
        return refuse(row.status)
    end
    if row.last ~= command.seen then
        return {'!', 'version', S.text(row.last)}
    end
    ask(row, 'decision', command.token)
    requeue(row, command.token, false)
    S.append_store_entry(row, 'decision', command.decision, command.key)
    if command.verdict then
        S.begin_undo(row, command.verdict)
    end
    return false
end

-- As `encode_error` writes an Abandoned.
function S.abandoned_verdict(id, seconds)
    local rounded = string.format('%.1f', seconds)
    local whole = rounded:match('^%d+'):reverse():gsub('(%d%d%d)', '%1,'):reverse():gsub('^,', '')
    local said = 'run ' .. "'" .. id .. "'" .. ' was abandoned: nobody took it for ' .. whole .. rounded:match('%.%d$')
        .. ' seconds, and its effects were undone. Start it again with `outlast retry ' .. id .. '`.'
    local name, time = cjson.encode(id), S.text(seconds)
    local error = '{"type":"outlast.errors:Abandoned","message":' .. cjson.encode(said) .. ',"args":[' .. name .. ',' .. time
        .. '],"state":{"id":' .. name .. ',"reason":"","seconds":' .. time .. '}}'
    return '{"status": "failed", "value": null, "error": ' .. cjson.encode(error) .. ', "reason": null, "failed_at": null}'
end
