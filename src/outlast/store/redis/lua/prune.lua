-- The command Prune for runs and items. For sessions it calls `S.prune_sessions`.
--
-- The server serves no other client meanwhile, so one call checks at most `look` runs and deletes
-- those that may be deleted. Its answer: how many were deleted, how many at the beginning of the
-- sorted set must stay, and whether there are more. The store then calls again and starts after
-- those that must stay.

-- Fields that deleting a run needs.
local DELETE_FIELDS = {
    'fence', 'id', 'status', 'workflow', 'queue', 'parent', 'ended', 'key', 'started',
}

local ANCESTOR_FIELDS = {'ended', 'undoing', 'status', 'parent'}
local OWN_FIELDS = {'undoing', 'parent', 'status', 'id'}

-- Answers found so far, by id: whether a run needs its descendants, and whether one of its
-- descendants is a dead letter. The second is nil if the store has no dead letters.
local needs, has_dead_letter = {}, {}

-- Return whether a run needs its descendants: if it or one of its ancestors has not ended, is being
-- compensated, or is a dead letter that stays. `dead`: dead letters are deleted too.
local function needs_descendants(id, dead)
    if needs[id] == nil then
        needs[id] = false  -- in case a run is its own ancestor
        local pk = S.hget(P .. 'ids', id)
        if pk then
            local fields = S.read_run_fields(pk, ANCESTOR_FIELDS)
            local ended, undoing, status, parent = unpack(fields, 1, 4)
            local own = not ended or undoing or status == 'dead' and not dead
            needs[id] = (own or parent and needs_descendants(parent, dead)) and true or false
        end
    end
    return needs[id]
end

-- Return whether a descendant of a run is a dead letter.
local function has_dead_descendant(id)
    if has_dead_letter and has_dead_letter[id] == nil then
        has_dead_letter[id] = false
        for _, pk in ipairs(call('ZRANGE', P .. 'children:' .. id, 0, -1)) do
            local status, child = unpack(S.read_run_fields(pk, {'status', 'id'}), 1, 2)
            if status == 'dead' or child and has_dead_descendant(child) then
                has_dead_letter[id] = true
                break
            end
        end
    end
    return has_dead_letter and has_dead_letter[id]
end

-- Return whether a run still counts against the rate of its key.
local function counts_as_start(pk)
    local queue, key, started = unpack(S.read_run_fields(pk, {'queue', 'key', 'started'}), 1, 3)
    local period = key and started and S.queue_limit(queue, 'key_period')
    return period and tonumber(started) + period > S.now
end

-- Return whether a run must stay. `dead`: dead letters are deleted too.
local function must_stay(pk, dead)
    local undoing, parent, status, id = unpack(S.read_run_fields(pk, OWN_FIELDS), 1, 4)
    return undoing or parent and needs_descendants(parent, dead)
        or not dead and (status == 'dead' or has_dead_descendant(id))
end

-- Return up to `limit` runs that may be deleted, oldest first, how many of those checked must stay,
-- and whether there are more to check.
local function prunable(command, key, start, check)
    local found, kept, checked = {}, 0, 0
    local most = math.min(command.limit, command.look)
    local before = '(' .. S.text(command.before)
    while #found < most and checked < command.look do
        local count = math.min(most - #found, command.look - checked)
        local from = start + kept + #found
        local flat = call(
            'ZRANGEBYSCORE', P .. key, '-inf', before, 'WITHSCORES', 'LIMIT', from, count
        )
        for i = 1, #flat, 2 do
            if counts_as_start(flat[i]) or check and must_stay(flat[i], command.dead) then
                kept = kept + 1
            else
                found[#found + 1] = {pk = flat[i], ended = tonumber(flat[i + 1])}
            end
        end
        checked = checked + count
        if #flat < 2 * count then
            return found, kept, false
        end
    end
    return found, kept, true
end

local function delete(found, count)
    for i = 1, count do
        S.delete_run(S.row_part(found[i].pk, DELETE_FIELDS))
    end
end

-- Delete ended runs, including acked items, oldest first.
local function prune_runs(command)
    local found, kept, more = prunable(command, 'ended', command.start, true)
    local acked, _, more_acked = prunable(command, 'acked', 0, true)
    for _, item in ipairs(acked) do
        found[#found + 1] = item
    end
    table.sort(found, function(one, other) return one.ended < other.ended end)
    local count = math.min(#found, command.limit)
    delete(found, count)
    return count, command.start + kept, more or more_acked and #acked > 0 or count < #found
end

-- Delete acked items only. None of them has descendants.
local function prune_items(command)
    local found, _, more = prunable(command, 'acked', 0, false)
    delete(found, #found)
    return #found, 0, more
end

-- Delete the runs named in the command.
local function prune_by_id(command)
    local found = {}
    for _, id in ipairs(command.ids) do
        local pk = S.hget(P .. 'ids', id)
        local ended = pk and tonumber(S.read_run_fields(pk, {'ended'})[1])
        local is_old = ended and ended < command.before
        if is_old and not counts_as_start(pk) and not must_stay(pk, true) then
            found[#found + 1] = {pk = pk, ended = ended}
        end
    end
    table.sort(found, function(one, other) return one.ended < other.ended end)
    local count = math.min(#found, command.limit)
    delete(found, count)
    return count, 0, false
end

function S.Prune(command)
    if command.limit <= 0 then
        return {'0', '0', '0'}
    end
    S.flush()
    needs, has_dead_letter = {}, call('EXISTS', P .. 'status:dead') == 1 and {} or nil
    local prune = command.sessions and S.prune_sessions or #command.ids > 0 and prune_by_id
        or command.items and prune_items or prune_runs
    local count, passed, more = prune(command)
    return {S.text(count), S.text(passed), more and '1' or '0'}
end
