-- The command Claim. Claimable runs are in ready sets (see `S.ready_set_key`), each of which is
-- ordered. A claim merges the ready sets that it may take from by their heads, so it costs the
-- number of sets plus the number of runs claimed, however many runs are ready.

local EACH = '(each)'  -- the workflow of batches, which a claim must name
local DUE_MAX = 1000   -- the most runs that one claim makes ready

-- Make runs ready that have come due.
local function make_due_runs_ready()
    S.flush()
    local now = S.text(S.now)
    for _, pk in ipairs(call('ZRANGEBYSCORE', P .. 'later', '-inf', now, 'LIMIT', 0, DUE_MAX)) do
        S.make_ready(S.row(pk))
    end
    S.flush()
end

-- Make a run claimable.
function S.make_ready(row)
    S.put(row, 'ready', S.is_suspect(row.deaths_in_a_row) and 2 or 1)
end

local function set_of(list)
    local set = {}
    for _, value in ipairs(list) do
        set[value] = true
    end
    return set
end

-- Return the ready sets that this claim may take from, in descending order of their heads, so that
-- the last one has the run to claim next. A ready set has the members that were fetched, `at` as
-- the position of its head among them, and `fetched` as the number of members fetched so far.
local function matching_ready_sets(command, queues, returned)
    local ready = command.suspects and '2' or '1'
    local known, any = set_of(command.workflows), #command.workflows == 0
    local found, seen = {}, {}
    local function add(ready_set, key)
        ready_set.key, ready_set.members = key, call('ZRANGE', key, 0, 0)
        ready_set.at, ready_set.fetched = 1, 1
        if ready_set.members[1] then
            found[#found + 1] = ready_set
        end
    end
    for _, queue in ipairs(queues) do
        local slots = S.free_slots(queue)
        for _, listed in ipairs(seen[queue] and {} or call('SMEMBERS', P .. 'lines:' .. queue)) do
            local new, child, workflow = listed:sub(2, 2), listed:sub(3, 3), listed:sub(4)
            local is_wanted = listed:sub(1, 1) == ready
                and (known[workflow] or any and workflow ~= EACH)
            if is_wanted and (new == '1' or returned > 0) and (child == '1' or slots > 0) then
                local is_child = child == '1'
                add(
                    {
                        queue = queue, listed = listed, is_returned = new == '0',
                        is_child = is_child, has_keys = child == '2',
                    },
                    S.ready_set_key(ready, new, child, queue, workflow)
                )
            end
        end
        seen[queue] = true
    end
    table.sort(found, function(one, other) return one.members[1] > other.members[1] end)
    return found
end

local FETCH_MAX = 20

-- Move a ready set past its head and insert it where its new head belongs. When its members are
-- used up, fetch more of them, the fewer the more ready sets there are.
local function advance(ready_sets, ready_set)
    ready_set.at = ready_set.at + 1
    if not ready_set.members[ready_set.at] then
        local start = ready_set.fetched
        local count = math.max(math.floor(FETCH_MAX / (#ready_sets + 1)), 1)
        ready_set.members = call('ZRANGE', ready_set.key, start, start + count - 1)
        ready_set.at, ready_set.fetched = 1, start + #ready_set.members
    end
    local head = ready_set.members[ready_set.at]
    if not head then
        return
    end
    local low, high = 1, #ready_sets + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        local other = ready_sets[middle]
        if other.members[other.at] > head then
            low = middle + 1
        else
            high = middle
        end
    end
    table.insert(ready_sets, low, ready_set)
end

-- Choose up to `limit` runs to claim, at most `returned_max` of them interrupted ones. Return
-- {pk, ready set, member} for each, in order.
local function choose(command, queues, limit, returned_max)
    local chosen, taken, returned = {}, {}, 0
    local ready_sets = matching_ready_sets(command, queues, returned_max)
    while #chosen < limit and #ready_sets > 0 do
        local ready_set = table.remove(ready_sets)
        local used = taken[ready_set.queue] or 0
        local is_full = not ready_set.is_child and used >= S.free_slots(ready_set.queue)
        -- A ready set that may give no more is not put back.
        if not (ready_set.is_returned and returned == returned_max) and not is_full then
            local member = ready_set.members[ready_set.at]
            returned = returned + (ready_set.is_returned and 1 or 0)
            taken[ready_set.queue] = used + (ready_set.is_child and 0 or 1)
            chosen[#chosen + 1] = {S.pk_of_member(member), ready_set, member}
            if #chosen < limit then
                advance(ready_sets, ready_set)
            end
        end
    end
    return chosen
end

-- Return the rows of the runs named in the command that are due, by pk, at most `limit`.
local function rows_by_id(command)
    local found, seen = {}, {}
    for _, id in ipairs(command.ids) do
        local row = not seen[id] and S.row_by_id(id)
        seen[id] = true
        local is_unheld = row and (row.status == 'queued' or row.status == 'waiting')
        if is_unheld and (row.ready ~= 0 or row.due <= S.now) then
            found[#found + 1] = row
        end
    end
    table.sort(found, function(one, other) return tonumber(one.pk) < tonumber(other.pk) end)
    for i = #found, command.limit + 1, -1 do
        found[i] = nil
    end
    return found
end

-- Record a recovery if a draining worker left this run interrupted.
local function record_recovery(row)
    if row.interrupted and row.left_by and S.hget(P .. 'drain:' .. row.left_by, 'number') then
        local seconds = math.max(S.now - (row.left_at or S.now), 0)
        S.hset(P .. 'recoveries:' .. row.left_by, row.pk, S.text(seconds))
    end
end

-- Return whether a run was claimable for long enough that `S.abandon_if_overdue` must check it.
local function may_be_abandoned(row)
    return row.abandon_after and row.started and not row.undoing and not row.cancel
        and (row.turn or row.due) + row.abandon_after < S.now
end

-- Encode the last execution of a run as a JSON list of texts, in the order of ExecutionRow. It has
-- no end while a worker holds the run.
function S.encode_execution(row)
    local ended = not row.worker and (row.released or row.ended)
    return cjson.encode({
        S.text(math.abs(row.fence)), row.claimed_by, row.claimed_host, S.text(row.claimed_pid),
        S.text(row.claimed), ended and S.text(ended) or cjson.null, row.released_as or row.status,
        row.reason or cjson.null,
    })
end

-- Give a run to the worker under a new fence.
local function claim_row(row, command)
    if row.claimed then
        S.append_item(P .. 'executions:' .. row.pk, S.encode_execution(row))
    end
    local host, pid = S.host_and_pid(command.worker)
    S.put(row, 'turn', nil)
    S.put(row, 'claimed', S.now)
    S.put(row, 'claimed_by', command.worker)
    S.put(row, 'claimed_host', host)
    S.put(row, 'claimed_pid', tonumber(pid))
    S.put(row, 'released', nil)
    S.put(row, 'released_as', nil)
    S.set_status(row, 'running')
    S.put(row, 'ready', 0)
    S.put(row, 'left_by', nil)
    S.put(row, 'left_at', nil)
    S.put(row, 'fence', S.next_fence())
    S.put(row, 'worker', command.worker)
    S.put(row, 'token', command.token)
    S.put(row, 'waits', '')
    S.put(row, 'lives', row.lives + 1)
    S.put(row, 'started', row.started or S.now)
    local deadline = row.deadline or row.timeout and S.now + row.timeout
    S.put(row, 'deadline', not row.undoing and deadline or nil)
end

-- Return the rows that a worker holds under a token, by fence.
local function rows_by_token(worker, token)
    S.flush()
    local prefix = S.pair(token, '')
    local found = {}
    local low, high = '[' .. prefix, '(' .. prefix .. '\255'
    for _, member in ipairs(call('ZRANGEBYLEX', P .. 'held:' .. worker, low, high)) do
        found[#found + 1] = S.row(member:sub(#prefix + 1))
    end
    table.sort(found, function(one, other) return one.fence < other.fence end)
    return found
end

local function encode_rows(rows)
    local flat = {'rows'}
    for _, row in ipairs(rows) do
        flat[#flat + 1] = S.encode_row(row)
    end
    return flat
end

-- Restore the row from the beginning of the list that it was read into.
local function revert_claim(try, key, before)
    local flat, size = before[1], before[2]
    try('DEL', key)
    try('HSET', key, unpack(flat, 1, size))
end

-- Remove a run from the sorted sets of a claimable run and add it to those of a running one.
local function move_to_running(pk, fields, ready_set, member, command)
    local status, queue, worker = fields.status, ready_set.queue, command.worker
    S.zrem(ready_set.key, '0', member, P .. 'lines:' .. queue, ready_set.listed)
    if status == 'queued' then
        S.zrem(P .. 'oldest:' .. queue, fields.created, pk)
        if fields.interrupted or (tonumber(fields.deaths_in_a_row) or 0) > 0 then
            S.zrem(P .. 'returned:' .. queue, tonumber(fields.due) or 0, pk)
        end
    end
    S.zrem(P .. 'status:' .. status, pk, pk)
    S.zadd(P .. 'status:running', pk, pk)
    S.zadd(P .. 'held:' .. worker, '0', S.pair(command.token, pk), P .. 'holders', worker)
    S.count_status_change(queue, ready_set.is_child, status, 'running')
    if fields.key then
        local of_key = S.pair(queue, fields.key)
        local lane = S.lane_of(tonumber(fields.ready), fields.started, fields.workflow)
        local in_lane, listed = lane .. S.place_in_lane(fields, pk), P .. 'head_keys:' .. queue
        S.zrem(P .. 'heads:' .. of_key, '0', in_lane, listed, fields.key)
        S.zadd(P .. 'key_running:' .. of_key, pk, pk)
        if not fields.started then
            S.zadd(P .. 'key_started:' .. of_key, S.now, pk)
        end
    end
end

local fields = {}  -- of one run at a time; reused because building tables is expensive

-- Do the same as `claim_row` for a run that was never claimed and is not loaded. Return the encoded
-- row, or nil if the run must be loaded.
local function claim_unloaded(pk, ready_set, member, command, host, pid)
    if not S.use_fast_path(pk) then
        return nil
    end
    local flat = call('HGETALL', P .. 'run:' .. pk)
    local size = #flat
    for name in pairs(fields) do
        fields[name] = nil
    end
    for i = 1, size, 2 do
        fields[flat[i]] = flat[i + 1]
    end
    if fields.claimed or fields.undoing then
        return nil
    end
    move_to_running(pk, fields, ready_set, member, command)
    flat[size + 1], flat[size + 2] = 'fence', S.text(S.next_fence())
    flat[size + 3], flat[size + 4] = 'status', 'running'
    flat[size + 5], flat[size + 6] = 'token', command.token
    flat[size + 7], flat[size + 8] = 'worker', command.worker
    flat[size + 9], flat[size + 10] = 'ready', '0'
    flat[size + 11], flat[size + 12] = 'lives', S.text((tonumber(fields.lives) or 0) + 1)
    local last = size + 12
    if fields.waits ~= '' then
        flat[last + 1], flat[last + 2] = 'waits', ''
        last = last + 2
    end
    if not fields.started then
        flat[last + 1], flat[last + 2] = 'started', S.text(S.now)
        last = last + 2
    end
    local timeout = tonumber(fields.timeout or '')
    if timeout and not fields.deadline then
        flat[last + 1], flat[last + 2] = 'deadline', S.text(S.now + timeout)
        last = last + 2
    end
    if fields.key then
        flat[last + 1], flat[last + 2] = 'turn', ''
        last = last + 2
    end
    flat[last + 1], flat[last + 2] = 'pk', pk
    local encoded = cjson.encode(flat)
    -- The answer has no `claimed` fields, and the stored row has no pk.
    flat[last + 1], flat[last + 2] = 'claimed', S.text(S.now)
    flat[last + 3], flat[last + 4] = 'claimed_by', command.worker
    flat[last + 5], flat[last + 6] = 'claimed_host', host
    flat[last + 7], flat[last + 8] = 'claimed_pid', pid
    S.update_run_from_tail(pk, revert_claim, flat, size + 1, last + 8)
    return encoded
end

-- Claim a loaded run, after abandoning it if it was claimable for too long. Return the encoded row.
local function claim_loaded(row, command, by_id)
    record_recovery(row)
    if not by_id and may_be_abandoned(row) then
        S.abandon_if_overdue(row)
    end
    claim_row(row, command)
    return S.encode_row(row)
end

-- Review the keys of runs that were claimed or held back.
local function review(touched)
    if next(touched) then
        S.flush()
        for _, change in pairs(touched) do
            S.review_key(unpack(change, 1, 3))
        end
        S.flush()
    end
end

local function claim_by_id(command)
    local answer, touched, admitted = {'rows'}, {}, nil
    for _, row in ipairs(rows_by_id(command)) do
        admitted = admitted or row.key and S.key_admission()
        local is_limited = row.key and not row.undoing
        if not is_limited or admitted(row.queue, row.key, not row.started) then
            if row.key then
                local of_key = S.pair(row.queue, row.key)
                touched[of_key] = {row.queue, row.key, S.now}
            end
            answer[#answer + 1] = claim_loaded(row, command, true)
        end
    end
    review(touched)
    return answer
end

-- Claim the runs of one round, except those that their keys hold back. The round ends where a run
-- that gets its turn meanwhile goes before the rest. Add the runs to the answer. Return how many
-- there are, how many of them were interrupted, and whether there may be more.
local function claim_round(command, chosen, answer)
    local host, pid = S.host_and_pid(command.worker)
    local count, returned, touched, admitted, least = 0, 0, {}, nil, nil
    for _, choice in ipairs(chosen) do
        local pk, ready_set, member = unpack(choice)
        local is_held_back = false
        if least and least < member then
            break
        end
        if ready_set.has_keys then
            local queue, run = ready_set.queue, P .. 'run:' .. pk
            local key, started, undoing = unpack(call('HMGET', run, 'key', 'started', 'undoing'))
            local of_key, room = S.pair(queue, key), nil
            if touched[of_key] then
                break
            end
            admitted = admitted or S.key_admission()
            is_held_back = not undoing
            if is_held_back then
                local may_start, left = admitted(queue, key, not started)
                is_held_back, room = not may_start, left
            end
            local turn = struct.unpack('>d', member, 17)
            touched[of_key] = {queue, key, not is_held_back and turn or nil}
            local place = room and S.next_place(queue, key, turn, room)
            least = place and not (least and least < place) and place or least
        end
        if not is_held_back then
            answer[#answer + 1] = claim_unloaded(pk, ready_set, member, command, host, pid)
                or claim_loaded(S.row(pk), command, false)
            count, returned = count + 1, returned + (ready_set.is_returned and 1 or 0)
        end
    end
    local has_keys = next(touched) ~= nil
    review(touched)
    return count, returned, has_keys
end

-- Claim the first ready runs. As long as there is room, the runs that get their turns by these
-- claims are claimed too.
local function claim_first(command)
    make_due_runs_ready()
    local queues = #command.queues > 0 and command.queues or call('ZRANGE', P .. 'queues', 0, -1)
    for _, queue in ipairs(command.limit > 0 and queues or {}) do
        S.review_changed_keys(queue)
    end
    local answer = {'rows'}
    local limit = command.limit
    local returned_max = math.min(command.returned or limit, limit)
    while limit > 0 do
        local chosen = choose(command, queues, limit, returned_max)
        local count, returned, more = claim_round(command, chosen, answer)
        limit, returned_max = limit - count, returned_max - returned
        if not more then
            break
        end
    end
    return answer
end

function S.Claim(command)
    local draining = S.draining_flag(command.worker)
    if not draining then
        return S.WORKER
    end
    local claimed = rows_by_token(command.worker, command.token)
    if #claimed > 0 then  -- a repeat
        return encode_rows(claimed)
    end
    if draining == 1 then
        return S.DRAINING
    end
    if #command.ids > 0 then
        return claim_by_id(command)
    end
    return claim_first(command)
end
