-- Settle and Ack for runs that are running and not loaded, which is how most runs end. All other
-- cases go to `S.settle_loaded` and `S.ack_loaded` in release.lua.

-- Positions of the fields that both commands read.
local FENCE, STATUS, WORKER, TOKEN, PARENT, WORKFLOW, QUEUE, KEY = 1, 2, 3, 4, 5, 6, 7, 8

-- Move a running run to the sorted sets of an ended one, and count its end. `before` has its
-- fields as they were read.
local function move_to_ended(pk, before, status)
    local worker, queue = before[WORKER], before[QUEUE]
    local member = S.pair(before[TOKEN] or '', pk)
    S.zrem(P .. 'status:running', pk, pk)
    S.zadd(P .. 'status:' .. status, pk, pk)
    S.zrem(P .. 'held:' .. worker, '0', member, P .. 'holders', worker)
    S.zadd(P .. (before[WORKFLOW] == '' and status == 'done' and 'acked' or 'ended'), S.now, pk)
    S.count_status_change(queue, before[PARENT], 'running', status)
    S.count_event(queue, 'e', S.now)
    if before[KEY] then
        S.zrem(P .. 'key_running:' .. S.pair(queue, before[KEY]), pk, pk)
        S.note_key(queue, before[KEY], 0)
    end
end

-- Return the fields with these names if this fence, a text, holds the run and the fast path may
-- handle it; nil otherwise.
local function read_if_held(run, fence, names)
    local before = S.use_fast_path(run) and S.read_run_fields(run, names)
    local is_held = before and before[FENCE] == fence and before[STATUS] == 'running'
    return is_held and before or nil
end

-- The fields that Settle changes or reads. Settle clears those from FIRST_CLEARED on, except that
-- it sets those from FIRST_GIVEN on to the values of the command.
local SETTLE_FIELDS = {
    'fence', 'status', 'worker', 'token', 'parent', 'workflow', 'queue', 'key', 'ended', 'waits',
    'deaths_in_a_row', 'interruptions_in_a_row', 'interrupted', 'undoing', 'value', 'error',
    'reason', 'failed_at',
}
local FIRST_CLEARED, UNDOING, FIRST_GIVEN = 11, 14, 15

-- Return the fields to set (name, value, ...) and the names of those to unset.
local function settled_fields(command, before)
    local set = {
        'status', command.status, 'fence', S.text(-command.fence), 'worker', '',
        'ended', S.text(S.now), 'waits', '',
    }
    local unset = {}
    for i = FIRST_CLEARED, #SETTLE_FIELDS do
        local name = SETTLE_FIELDS[i]
        local value = command[name]
        if value and i >= FIRST_GIVEN then
            set[#set + 1], set[#set + 2] = name, type(value) == 'number' and S.text(value) or value
        elseif before[i] then
            unset[#unset + 1] = name
        end
    end
    return set, unset
end

local function revert_settle(try, key, before)
    for i, name in ipairs(SETTLE_FIELDS) do
        if before[i] then
            try('HSET', key, name, before[i])
        else
            try('HDEL', key, name)
        end
    end
end

-- Settle a run without loading it. Return false if that is not possible. A run that is being
-- compensated is not settled here, because it is in one more sorted set.
local function settle_unloaded(command)
    local before = command.status ~= 'parked'
        and read_if_held(command.run, S.text(command.fence), SETTLE_FIELDS)
    if not before or before[UNDOING] then
        return false
    end
    move_to_ended(command.run, before, command.status)
    S.update_run(command.run, revert_settle, before, settled_fields(command, before))
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
    return not settle_unloaded(command) and S.settle_loaded(command)
end

local ACK_FIELDS = {
    'fence', 'status', 'worker', 'token', 'parent', 'workflow', 'queue', 'key', 'undoing',
}

-- Unset `ended`, too: a run that is held has not ended.
local function revert_ack(try, key, before)
    try('HSET', key, 'fence', before[FENCE], 'status', before[STATUS], 'worker', before[WORKER])
    try('HDEL', key, 'ended')
end

function S.Ack(run, fence)
    local before = read_if_held(run, fence, ACK_FIELDS)
    if not before or before[#ACK_FIELDS] then  -- one more sorted set, as above
        return S.ack_loaded(run, tonumber(fence))
    end
    move_to_ended(run, before, 'done')
    local set = {'fence', '-' .. fence, 'status', 'done', 'worker', '', 'ended', S.text(S.now)}
    S.update_run(run, revert_ack, before, set)
    return false
end
