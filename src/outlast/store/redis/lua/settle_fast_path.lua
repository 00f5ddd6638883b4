-- Settle and Ack of runs that are held and not in the view: the way that most of them end.

-- What is read of a run before it ends: first of all that.
local FENCE, STATUS, WORKER, TOKEN, PARENT, WORKFLOW, QUEUE = 1, 2, 3, 4, 5, 6, 7

-- A run ends that is held, and whose row is not in the view: where it is then. Of a child the parent may have waited for that.
local function end_here(pk, before, status)
    local worker, queue = before[WORKER], before[QUEUE]
    S.zrem(P .. 'status:running', pk, pk)
    S.zadd(P .. 'status:' .. status, pk, pk)
    S.zrem(P .. 'held:' .. worker, '0', S.pair(before[TOKEN] or '', pk), P .. 'holders', worker)
    S.zadd(P .. (before[WORKFLOW] == '' and status == 'done' and 'acked' or 'ended'), S.now, pk)
    S.count_status_change(queue, before[PARENT], 'running', status)
    S.count_event(queue, 'e', S.now)
end

-- What is known of a run before it ends, if this fence, a text, holds it and it can be done without the view.
local function held_here(run, fence, names)
    local before = S.use_fast_path(run) and S.read_run_fields(run, names)
    return before and before[FENCE] == fence and before[STATUS] == 'running' and before or nil
end

local SETTLING = {
    'fence', 'status', 'worker', 'token', 'parent', 'workflow', 'queue', 'ended', 'waits', 'deaths_in_a_row', 'interruptions_in_a_row',
    'interrupted', 'undoing', 'value', 'error', 'reason', 'failed_at',
}

-- What a run ends with: to set, and to unset.
local function ending(command, before)
    local set = {'status', command.status, 'fence', S.text(-command.fence), 'worker', '', 'ended', S.text(S.now), 'waits', ''}
    local unset = {}
    for i = 10, #SETTLING do
        local name = SETTLING[i]
        local value = command[name]
        if value and i > 13 then
            set[#set + 1], set[#set + 2] = name, type(value) == 'number' and S.text(value) or value
        elseif before[i] then
            unset[#unset + 1] = name
        end
    end
    return set, unset
end

local function not_settled(try, key, before)
    for i, name in ipairs(SETTLING) do
        if before[i] then
            try('HSET', key, name, before[i])
        else
            try('HDEL', key, name)
        end
    end
end

local function settle_here(command)
    local before = command.status ~= 'parked' and held_here(command.run, S.text(command.fence), SETTLING)
    if not before or before[13] then  -- one that was being undone stands in one set more
        return false
    end
    end_here(command.run, before, command.status)
    S.update_run(command.run, not_settled, before, ending(command, before))
    local progress = P .. 'progress:' .. command.run
    if call('EXISTS', progress) == 1 then
        S.delete_key(progress)
    end
    if before[PARENT] then
        S.wake_parent({parent = before[PARENT]})
    end
    return true
end

function S.Settle(command)
    return not settle_here(command) and S.settle_loaded(command)
end

local ACKING = {'fence', 'status', 'worker', 'token', 'parent', 'workflow', 'queue', 'undoing'}

-- (A run that is held has not ended.)
local function not_acked(try, key, before)
    try('HSET', key, 'fence', before[FENCE], 'status', before[STATUS], 'worker', before[WORKER])
    try('HDEL', key, 'ended')
end

function S.Ack(run, fence)
    local before = held_here(run, fence, ACKING)
    if not before or before[8] then  -- as above
        return S.ack_loaded(run, tonumber(fence))
    end
    end_here(run, before, 'done')
    S.update_run(run, not_acked, before, {'fence', '-' .. fence, 'status', 'done', 'worker', '', 'ended', S.text(S.now)})
    return false
end
