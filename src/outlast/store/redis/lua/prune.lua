-- Prune. One call looks at no more than `look` runs, and removes of these what may go: nobody else is served meanwhile. Its answer: how many
-- went, how many it has passed from the beginning that may not go, and whether there are more behind. Who asks goes on from there.

local GOING = {'fence', 'id', 'status', 'workflow', 'queue', 'parent', 'ended'}

local ABOVE, OWN = {'ended', 'undoing', 'status', 'parent'}, {'undoing', 'parent', 'status', 'id'}

local needs, letters = {}, {}  -- id -> whether it needs those below it; whether there is a dead letter below it (nil: there is none at all)

-- A run needs those below it if it, or one above it, has not ended, is not undone yet, or is a dead letter that stays.
local function needs_those_below(id, dead)
    if needs[id] == nil then
        needs[id] = false  -- whoever is above itself
        local pk = S.hget(P .. 'ids', id)
        if pk then
            local ended, undoing, status, parent = unpack(S.read_run_fields(pk, ABOVE), 1, 4)
            local own = not ended or undoing or status == 'dead' and not dead
            needs[id] = (own or parent and needs_those_below(parent, dead)) and true or false
        end
    end
    return needs[id]
end

local function has_letter_below(id)
    if letters and letters[id] == nil then
        letters[id] = false
        for _, pk in ipairs(call('ZRANGE', P .. 'children:' .. id, 0, -1)) do
            local status, child = unpack(S.read_run_fields(pk, {'status', 'id'}), 1, 2)
            if status == 'dead' or child and has_letter_below(child) then
                letters[id] = true
                break
            end
        end
    end
    return letters and letters[id]
end

-- `dead`: dead letters go too.
local function stays(pk, dead)
    local undoing, parent, status, id = unpack(S.read_run_fields(pk, OWN), 1, 4)
    return undoing or parent and needs_those_below(parent, dead) or not dead and (status == 'dead' or has_letter_below(id))
end

-- Up to `limit` that may go, oldest first. How many may not that stand before them; whether there are more.
local function prunable(command, key, start, check)
    local found, kept, looked = {}, 0, 0
    local most = math.min(command.limit, command.look)
    while #found < most and looked < command.look do
        local count = math.min(most - #found, command.look - looked)
        local from = start + kept + #found
        local flat = call('ZRANGEBYSCORE', P .. key, '-inf', '(' .. S.text(command.before), 'WITHSCORES', 'LIMIT', from, count)
        for i = 1, #flat, 2 do
            if check and stays(flat[i], command.dead) then
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
        S.delete_run(S.row_part(found[i].pk, GOING))
    end
end

local function prune_runs(command)
    local found, kept, more = prunable(command, 'ended', command.start, true)
    local acked, _, more_acked = prunable(command, 'acked', 0, true)
    for _, item in ipairs(acked) do
        found[#found + 1] = item
    end
    table.sort(found, function(one, other) return one.ended < other.ended end)
    local count = math.min(#found, command.limit)
    remove(found, count)
    return count, command.start + kept, more or more_acked and #acked > 0 or count < #found
end

local function prune_items(command)
    local found, _, more = prunable(command, 'acked', 0, false)
    remove(found, #found)
    return #found, 0, more
end

local function prune_named(command)
    local found = {}
    for _, id in ipairs(command.ids) do
        local pk = S.hget(P .. 'ids', id)
        local ended = pk and tonumber(S.read_run_fields(pk, {'ended'})[1])
        if ended and ended < command.before and not stays(pk, true) then
            found[#found + 1] = {pk = pk, ended = ended}
        end
    end
    table.sort(found, function(one, other) return one.ended < other.ended end)
    local count = math.min(#found, command.limit)
    remove(found, count)
    return count, 0, false
end

function S.Prune(command)
    if command.limit <= 0 then
        return {'0', '0', '0'}
    end
    S.flush()
    needs, letters = {}, call('EXISTS', P .. 'status:dead') == 1 and {} or nil
    local prune = command.sessions and S.prune_sessions or #command.ids > 0 and prune_named or command.items and prune_items or prune_runs
    local count, passed, more = prune(command)
    return {S.text(count), S.text(passed), more and '1' or '0'}
end
