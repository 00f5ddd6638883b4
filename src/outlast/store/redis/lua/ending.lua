-- Settle and Ack of runs that are held and not in the view: the way that most of them end.

-- A run ends that is held, and whose row is not in the view: where it is then. Of a child the parent may have waited for that.
local ENDING = {'fence', 'status', 'worker', 'token', 'parent', 'workflow', 'queue'}

local function end_here(pk, before, status)
    local _, was, worker, token, parent, workflow, queue = unpack(before, 1, #ENDING)
    S.zrem(P .. 'status:' .. was, pk, pk)
    S.zadd(P .. 'status:' .. status, pk, pk)
    S.zrem(P .. 'held:' .. worker, '0', S.pair(token or '', pk), P .. 'holders', worker)
    S.zadd(P .. (workflow == '' and status == 'done' and 'acked' or 'ended'), S.now, pk)
    S.counted(queue, parent, was, status)
    S.happened(queue, 'e', S.now)
end

-- What is known of a run before it ends, if this fence holds it and it can be done without the view.
local function held_here(verb, names)
    local before = S.is_free(verb.run) and verb.fence > 0 and S.read(verb.run, names)
    return before and before[1] == S.text(verb.fence) and before[2] == 'running' and before or nil
end

local SETTLING = {
    'fence', 'status', 'worker', 'token', 'parent', 'workflow', 'queue', 'ended', 'waits', 'deaths_in_a_row', 'interruptions_in_a_row',
    'interrupted', 'undoing', 'value', 'error', 'reason', 'failed_at',
}

-- What a run ends with: to set, and to unset.
local function ending(verb, before)
    local set = {'status', verb.status, 'fence', S.text(-verb.fence), 'worker', '', 'ended', S.text(S.now), 'waits', ''}
    local unset = {}
    for i = 10, #SETTLING do
        local name = SETTLING[i]
        local value = verb[name]
        if value and i > 13 then
            set[#set + 1], set[#set + 2] = name, type(value) == 'number' and S.text(value) or value
        elseif before[i] then
            unset[#unset + 1] = name
        end
    end
    return set, unset
end

local function settle_here(verb)
    local before = verb.status ~= 'parked' and held_here(verb, SETTLING)
    if not before or before[13] then  -- one that was being undone stands in one set more
        return false
    end
    end_here(verb.run, before, verb.status)
    S.change(verb.run, SETTLING, before, ending(verb, before))
    local progress = P .. 'progress:' .. verb.run
    if call('EXISTS', progress) == 1 then
        S.drop(progress)
    end
    if before[5] then
        S.wake_parent({parent = before[5]})
    end
    return true
end

function S.Settle(verb)
    return not settle_here(verb) and S.settle_in_view(verb)
end

local ACKING = {'fence', 'status', 'worker', 'token', 'parent', 'workflow', 'queue', 'ended'}

function S.Ack(verb)
    local before = held_here(verb, ACKING)
    if not before then
        return S.ack_in_view(verb)
    end
    end_here(verb.run, before, 'done')
    local set = {'status', 'done', 'fence', S.text(-verb.fence), 'worker', '', 'ended', S.text(S.now)}
    S.change(verb.run, ACKING, before, set)
    return false
end
