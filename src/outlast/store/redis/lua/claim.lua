-- Claim. What is ready stands in lines, one for each queue, workflow, whether it is new and whether it is a child: a claim looks
-- at the first of each line that may serve it, however many stand behind.

local EACH = '(each)'
local DUE_MAX = 1000

-- What has come due gets ready.
local function come_due()
    S.flush()
    for _, pk in ipairs(call('ZRANGEBYSCORE', P .. 'later', '-inf', S.text(S.now), 'LIMIT', 0, DUE_MAX)) do
        S.make_ready(S.row(pk))
    end
    S.flush()
end

function S.make_ready(row)
    S.put(row, 'ready', row.deaths_in_a_row > 0 and 2 or 1)
end

local function set_of(list)
    local set = {}
    for _, value in ipairs(list) do
        set[value] = true
    end
    return set
end

-- The first of every line that this claim may take from.
local function first_of_lines(verb, returned)
    local ready = verb.suspects and '2' or '1'
    local known, any = set_of(verb.workflows), #verb.workflows == 0
    local found, seen = {}, {}
    for _, queue in ipairs(#verb.queues > 0 and verb.queues or call('ZRANGE', P .. 'queues', 0, -1)) do
        local room = S.room(queue)
        for _, line in ipairs(seen[queue] and {} or call('SMEMBERS', P .. 'lines:' .. queue)) do
            local new, child, workflow = line:sub(2, 2), line:sub(3, 3), line:sub(4)
            local count = math.min(new == '1' and verb.limit or returned, child == '1' and math.huge or room)
            local wanted = line:sub(1, 1) == ready and (known[workflow] or any and workflow ~= EACH)
            if wanted and count > 0 then
                local key = S.line(ready, new, child, queue, workflow)
                for _, member in ipairs(call('ZRANGE', key, 0, count - 1)) do
                    found[#found + 1] = {at = member, queue = queue, back = new == '0', child = child == '1'}
                end
            end
        end
        seen[queue] = true
    end
    table.sort(found, function(one, other) return one.at < other.at end)
    return found
end

local function claimable(verb)
    come_due()
    local returned = math.min(verb.returned or verb.limit, verb.limit)
    local chosen, taken, back = {}, {}, 0
    for _, place in ipairs(first_of_lines(verb, returned)) do
        if #chosen == verb.limit then
            break
        end
        local used = taken[place.queue] or 0
        local is_full = not place.child and used >= S.room(place.queue)
        if not (place.back and back == returned) and not is_full then
            back = back + (place.back and 1 or 0)
            taken[place.queue] = used + (place.child and 0 or 1)
            chosen[#chosen + 1] = S.row(S.standing_in(place.at))
        end
    end
    return chosen
end

-- Those of these ids that are due, by number. A limit holds here too.
local function named(verb)
    local found, seen = {}, {}
    for _, id in ipairs(verb.ids) do
        local row = not seen[id] and S.row_of(id)
        seen[id] = true
        if row and (row.status == 'queued' or row.status == 'waiting') and (row.ready > 0 or row.due <= S.now) then
            found[#found + 1] = row
        end
    end
    table.sort(found, function(one, other) return tonumber(one.pk) < tonumber(other.pk) end)
    for i = #found, verb.limit + 1, -1 do
        found[i] = nil
    end
    return found
end

-- It was left by a draining worker, and now is not: a recovery of that drain.
local function recovered(row)
    if row.interrupted and row.left_by and S.hget(P .. 'drain:' .. row.left_by, 'number') then
        local seconds = math.max(S.now - row.left_at, 0)
        S.hset(P .. 'recoveries:' .. row.left_by, row.pk, S.text(seconds))
    end
end

local function may_be_abandoned(row)
    return row.abandon_after and row.started and not row.undoing and not row.cancel and row.due + row.abandon_after < S.now
end

local function take(row, verb)
    S.become(row, 'running')
    S.put(row, 'ready', 0)
    S.put(row, 'left_by', nil)
    S.put(row, 'left_at', nil)
    S.put(row, 'fence', S.next_fence())
    S.put(row, 'worker', verb.worker)
    S.put(row, 'token', verb.token)
    S.put(row, 'waits', '')
    S.put(row, 'lives', row.lives + 1)
    S.put(row, 'started', row.started or S.now)
    local deadline = row.deadline or row.timeout and S.now + row.timeout
    S.put(row, 'deadline', not row.undoing and deadline or nil)
end

-- What a worker holds under a token, in the order of its fences.
local function by_token(worker, token)
    S.flush()
    local prefix = S.pair(token, '')
    local found = {}
    for _, member in ipairs(call('ZRANGEBYLEX', P .. 'held:' .. worker, '[' .. prefix, '(' .. prefix .. '\255')) do
        found[#found + 1] = S.row(member:sub(#prefix + 1))
    end
    table.sort(found, function(one, other) return one.fence < other.fence end)
    return found
end

local function sent(rows)
    local flat = {'rows'}
    for _, row in ipairs(rows) do
        flat[#flat + 1] = S.sent(row)
    end
    return flat
end

function S.Claim(verb)
    local draining = S.standing(verb.worker)
    if not draining then
        return S.WORKER
    end
    local again = by_token(verb.worker, verb.token)
    if #again > 0 then
        return sent(again)
    end
    if draining == 1 then
        return S.DRAINING
    end
    local by_name = #verb.ids > 0
    local chosen = by_name and named(verb) or claimable(verb)
    for _, row in ipairs(chosen) do
        recovered(row)
        if not by_name and may_be_abandoned(row) then
            S.abandon(row)
        end
        take(row, verb)
    end
    return sent(chosen)
end
