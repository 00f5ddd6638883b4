-- Prune.

local LOOK_MAX = 5000  -- rows that one Prune looks at: nobody else is served meanwhile

local function stays(row)
    if row.undoing then
        return true
    end
    local parent = row.parent and S.row_of(row.parent)
    return parent and (not parent.ended or parent.undoing) or false
end

-- Up to `limit` that may go, oldest first, from the so manyth on; at how many it stopped (0: at the end).
local function prunable(verb, key, start)
    local found, at = {}, start
    while #found < verb.limit and at - start < LOOK_MAX do
        local flat = call('ZRANGEBYSCORE', P .. key, '-inf', '(' .. S.text(verb.before), 'WITHSCORES', 'LIMIT', at, verb.limit)
        for i = 1, #flat, 2 do
            local row = S.row(flat[i])
            if #found < verb.limit and not stays(row) then
                found[#found + 1] = {row = row, ended = tonumber(flat[i + 1])}
            end
        end
        at = at + #flat / 2
        if #flat < 2 * verb.limit then
            return found, 0
        end
    end
    return found, at - #found
end

-- What may not go yet (children of parents that have not ended) stands before the rest: the next Prune starts behind what this
-- one has seen of it, and at the beginning again when it was at the end.
local function prune_runs(verb)
    local start = tonumber(S.hget(P .. 'counters', 'prune_from')) or 0
    local found, stopped = prunable(verb, 'ended', start)
    if #found == 0 and start > 0 then
        found, stopped = prunable(verb, 'ended', 0)
    end
    for _, item in ipairs((prunable(verb, 'acked', 0))) do
        found[#found + 1] = item
    end
    table.sort(found, function(one, other) return one.ended < other.ended end)
    for i = 1, math.min(#found, verb.limit) do
        S.remove(found[i].row)
    end
    if stopped ~= start then
        S.hset(P .. 'counters', 'prune_from', stopped > 0 and S.text(stopped) or nil)
    end
    return S.text(math.min(#found, verb.limit))
end

local function prune_items(verb)
    local found = call('ZRANGEBYSCORE', P .. 'acked', '-inf', '(' .. S.text(verb.before), 'LIMIT', 0, verb.limit)
    for _, pk in ipairs(found) do
        S.remove(S.row(pk))
    end
    return S.text(#found)
end

function S.Prune(verb)
    if verb.limit <= 0 then
        return '0'
    end
    S.flush()
    if verb.sessions then
        return S.prune_sessions(verb)
    end
    return verb.items and prune_items(verb) or prune_runs(verb)
end
