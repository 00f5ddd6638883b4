-- The fenced commands that end or release a run (Settle and Ack of loaded runs, Release), and
-- SetWaiting and Send. workers.lua, drains.lua and requests.lua also release and wake runs here.

-- Return the names as they are stored in `waits`: each between line breaks.
local function encode_names(list)
    return #list > 0 and '\n' .. table.concat(list, '\n') .. '\n' or ''
end

function S.SetWaiting(command)
    local row = S.held_row(command.run, command.fence)
    if not row then
        return S.FENCE
    end
    S.put(row, 'waits', encode_names(command.names))
    return false
end

-- Return the row if this fence was the last one of the run and is void now; nil otherwise.
local function row_after(run, fence)
    local row = S.row(run)
    return row and fence > 0 and row.fence == -fence and row or nil
end

-- Void the run's fence and take it from its worker.
function S.void_fence(row)
    S.put(row, 'fence', -math.abs(row.fence))
    S.put(row, 'worker', nil)
end

local SETTLED = {done = true, failed = true, cancelled = true, parked = true}

-- Settle a run that settle_fast_path.lua cannot settle.
function S.settle_loaded(command)
    local row = S.held_row(command.run, command.fence)
    if not row then
        local after = row_after(command.run, command.fence)
        -- Settling resets both counts. If one is not 0, the run was a dead letter that was
        -- cancelled later.
        local is_repeat = after and SETTLED[after.status] and after.deaths_in_a_row == 0
            and after.interruptions_in_a_row == 0
        return not is_repeat and S.FENCE
    end
    local parked = command.status == 'parked'
    if parked and command.unless_cancelled and row.cancel and not row.undoing then
        return {'!', 'cancel', row.cancel}
    end
    S.set_status(row, command.status)
    S.void_fence(row)
    for _, field in ipairs({'value', 'error', 'reason', 'failed_at'}) do
        S.put(row, field, command[field])
    end
    S.put(row, 'interrupted', nil)
    S.put(row, 'waits', '')
    S.put(row, 'deaths_in_a_row', 0)
    S.put(row, 'interruptions_in_a_row', 0)
    if parked then
        S.put(row, 'due', S.now)  -- since then its time-out is suspended (see `requeue`)
        S.put(row, 'ended', nil)
        S.put(row, 'released', S.now)
        S.put(row, 'released_as', 'parked')
    else
        S.put(row, 'undoing', nil)
        S.put(row, 'ended', S.now)
        S.delete_key(P .. 'progress:' .. row.pk)
    end
    S.wake_parent(row)
    return false
end

-- Ack an item that settle_fast_path.lua cannot ack.
function S.ack_loaded(run, fence)
    local row = S.held_row(run, fence)
    if not row then
        local after = row_after(run, fence)
        return not (after and after.status == 'done') and S.FENCE
    end
    S.set_status(row, 'done')
    S.void_fence(row)
    S.put(row, 'ended', S.now)
    return false
end

-- Make a waiting run due now, unless it already was.
local function wake(row)
    S.put(row, 'due', math.min(row.due, S.now))
    S.make_ready(row)
end

-- Make the parent of a run due if it waits: it may wait for this child.
function S.wake_parent(row)
    local parent = row.parent and S.row_by_id(row.parent)
    if parent and parent.status == 'waiting' then
        wake(parent)
    end
end

-- Take a run from its worker and give it this status. An item with a request to cancel is
-- cancelled instead. Return the status.
function S.release_run(row, status, due, reason)
    if row.workflow == '' and row.cancel then
        status, reason = 'cancelled', row.cancel
    end
    S.set_status(row, status)
    S.void_fence(row)
    S.put(row, 'released', S.now)
    S.put(row, 'released_as', status)
    S.put(row, 'due', due)
    S.put(row, 'reason', reason)
    S.put(row, 'ended', S.ENDED[status] and S.now or nil)
    S.put(row, 'ready', 0)
    if not S.ENDED[status] and due <= S.now then
        S.make_ready(row)
    elseif S.ENDED[status] then
        S.wake_parent(row)
    end
    return status
end

-- If the execution has made progress, reset the deaths and interruptions in a row and return true.
-- Call this before the fence is void.
function S.reset_counts_after_progress(row)
    if S.has_progress(row) then
        S.put(row, 'deaths_in_a_row', 0)
        S.put(row, 'interruptions_in_a_row', 0)
        return true
    end
    return false
end

local function count_in_words(count)
    return count == 1 and 'once' or S.text(count) .. ' times in a row'
end
S.count_in_words = count_in_words

-- Release an interrupted run ahead of new work, or make it a dead letter after too many
-- interruptions in a row. Return its status. If its worker drains, the next claim of the run counts
-- as a recovery of that drain. `seen` and `by` say when and how its worker was last seen, if the
-- worker did not release the run itself.
function S.interrupt_run(row, due, reason, draining, seen, by)
    local worker, in_a_row, status = row.worker, row.interruptions_in_a_row + 1, 'queued'
    S.put(row, 'interrupted', row.interrupted or S.now)
    S.put(row, 'interruptions', row.interruptions + 1)
    S.put(row, 'interruptions_in_a_row', in_a_row)
    if in_a_row >= row.interruptions_max then
        status = 'dead'
        reason = 'interrupted ' .. count_in_words(in_a_row)
            .. ' without recording anything; the last time: ' .. reason
    end
    status = S.release_run(row, status, due, reason)
    local evidence = seen and S.seen_json(seen, by) or ''
    S.append_store_entry(row, 'interruption', '{"why":' .. cjson.encode(reason) .. evidence .. '}')
    if draining and status == 'queued' then
        S.put(row, 'left_by', worker)
        S.put(row, 'left_at', seen or S.now)
    end
    return status
end

-- Return whether a run that is about to wait has news that its execution did not know: a request to
-- cancel, the end of a child, or a message.
local function has_news(row, command)
    if row.cancel then
        return true
    end
    for _, id in ipairs(command.children) do
        local child = S.row_by_id(id)
        if not child or child.ended then
            return true
        end
    end
    if #command.waits == 0 or row.mail <= command.seen then
        return false
    end
    local wanted = {}
    for _, name in ipairs(command.waits) do
        wanted[name] = true
    end
    S.flush()
    local mailbox = P .. 'mail:' .. row.pk
    for start = command.seen, row.mail - 1, S.CHUNK do
        for _, message in ipairs(call('LRANGE', mailbox, start, start + S.CHUNK - 1)) do
            if wanted[cjson.decode(message:match('^[^\n]*'))[1]] then
                return true
            end
        end
    end
    return false
end

-- Return the status of a run that this fence has released; nil if another command took it since.
local function status_after_release(run, fence)
    local row = row_after(run, fence)
    local status = row and row.status
    local in_a_row = row and (row.deaths_in_a_row > 0 or row.interruptions_in_a_row > 0)
    if status == 'queued' or status == 'waiting' or status == 'dead' then
        return status
    end
    return status == 'cancelled' and (row.workflow == '' or in_a_row) and status or nil
end

function S.Release(command)
    local row = S.held_row(command.run, command.fence)
    if not row then
        return status_after_release(command.run, command.fence) or S.FENCE
    end
    S.reset_counts_after_progress(row)
    if command.waiting then
        local due = has_news(row, command) and math.min(command.due, S.now) or command.due
        S.put(row, 'interrupted', nil)
        S.put(row, 'waits', encode_names(command.waits))
        return S.release_run(row, 'waiting', due, command.reason)
    end
    local due = S.now + command.delay
    if command.failed then
        S.put(row, 'failures', row.failures + 1)
        local status = row.failures >= row.attempts_max and 'dead' or 'queued'
        status = S.release_run(row, status, due, command.reason)
        S.append_unmarked_entry(row, 'failure', '{"why":' .. cjson.encode(command.reason) .. '}')
        return status
    end
    if command.interrupted then
        return S.interrupt_run(row, due, command.reason, S.draining_flag(row.worker) == 1)
    end
    return S.release_run(row, 'queued', due, command.reason)
end

-- Add a message to a run's mailbox. It is stored as three lines: its name in a JSON list, the time,
-- and JSON that only Python reads.
function S.Send(command)
    local row = S.row_by_id(command.id)
    if not row then
        return {'!', 'unknown', ''}
    end
    if row.workflow == '' then
        return {'!', 'status', 'item'}
    end
    if S.ENDED[row.status] then
        return {'!', 'status', row.status}
    end
    local mailed, this = P .. 'mailed:' .. row.pk, S.pair(command.name, command.message)
    if S.hget(mailed, this) then
        return false
    end
    if command.messages_max and row.mail >= command.messages_max then
        return {'!', 'depth', S.text(row.mail)}
    end
    S.hset(mailed, this, '1')
    S.put(row, 'mail', row.mail + 1)
    local message = command.named .. '\n' .. S.text(S.now) .. '\n' .. command.rest
    S.append_item(P .. 'mail:' .. row.pk, message)
    if row.status == 'waiting' and row.waits:find('\n' .. command.name .. '\n', 1, true) then
        wake(row)
    end
    return false
end
