-- Prune. One call looks at no more than `look` runs, and removes of these what may go: nobody else is served meanwhile. Its answer: how many
-- went, how many it has passed from the beginning that may not go, and whether there are more behind. Who asks goes on from there.

local GOING = {'fence', 'id', 'status', 'workflow', 'queue', 'parent', 'ended'}

local parents = {}  -- id -> whether its children stay

local function children_stay(id)
    if parents[id] == nil then
        local pk = S.hget(P .. 'ids', id)
        local ended, undoing
        if pk then
            ended, undoing = unpack(S.read(pk, {'ended', 'undoing'}), 1, 2)
        end
        parents[id] = pk and (not ended or undoing) and true or false
    end
    return parents[id]
end

local function stays(pk)
    local undoing, parent = unpack(S.read(pk, {'undoing', 'parent'}), 1, 2)
    return undoing or parent and children_stay(parent)
end

-- Up to `limit` that may go, oldest first. How many may not that stand before them; whether there are more.
local function prunable(verb, key, start, check)
    local found, kept, looked = {}, 0, 0
    local most = math.min(verb.limit, verb.look)
    while #found < most and looked < verb.look do
        local count = math.min(most - #found, verb.look - looked)
        local from = start + kept + #found
        local flat = call('ZRANGEBYSCORE', P .. key, '-inf', '(' .. S.text(verb.before), 'WITHSCORES', 'LIMIT', from, count)
        for i = 1, #flat, 2 do
            if check and stays(flat[i]) then
                kept = kept + 1
            else
                found[#found + 1] = {pk = flat[i], ended = tonumber(flat[i + 1])}
            end
        end
        looked = looked + count
        if #flat < 2 * count then
            return found, kept, false
        end
    end
    return found, kept, true
end

local function remove(found, count)
    for i = 1, count do
        S.remove(S.light(found[i].pk, GOING))
    end
end

local function prune_runs(verb)
    local found, kept, more = prunable(verb, 'ended', verb.start, true)
    local acked, _, more_acked = prunable(verb, 'acked', 0, true)
    for _, item in ipairs(acked) do
        found[#found + 1] = item
    end
    table.sort(found, function(one, other) return one.ended < other.ended end)
    local count = math.min(#found, verb.limit)
    remove(found, count)
    return count, verb.start + kept, more or more_acked and #acked > 0 or count < #found
end

local function prune_items(verb)
    local found, _, more = prunable(verb, 'acked', 0, false)
    remove(found, #found)
    return #found, 0, more
end

local function prune_named(verb)
    local found = {}
    for _, id in ipairs(verb.ids) do
        local pk = S.hget(P .. 'ids', id)
        local ended = pk and tonumber(S.read(pk, {'ended'})[1])
        if ended and ended < verb.before and not stays(pk) then
            found[#found + 1] = {pk = pk, ended = ended}
        end
    end
    table.sort(found, function(one, other) return one.ended < other.ended end)
    local count = math.min(#found, verb.limit)
    remove(found, count)
    return count, 0, false
end

function S.Prune(verb)
    if verb.limit <= 0 then
        return {'0', '0', '0'}
    end
    S.flush()
    parents = {}
    local prune = verb.sessions and S.prune_sessions or #verb.ids > 0 and prune_named or verb.items and prune_items or prune_runs
    local count, passed, more = prune(verb)
    return {S.text(count), S.text(passed), more and '1' or '0'}
end
