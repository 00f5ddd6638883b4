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
    S.put(row, 'ready', S.is_suspect(row.deaths_in_a_row) and 2 or 1)
end

local function set_of(list)
    local set = {}
    for _, value in ipairs(list) do
        set[value] = true
    end
    return set
end

-- Every line that this claim may take from, with its first, in the order of these, backwards.
local function lines_of(command, returned)
    local ready = command.suspects and '2' or '1'
    local known, any = set_of(command.workflows), #command.workflows == 0
    local found, seen = {}, {}
    local function add(line, key)
        line.key, line.members, line.at, line.seen = key, call('ZRANGE', key, 0, 0), 1, 1
        if line.members[1] then
            found[#found + 1] = line
        end
    end
    for _, queue in ipairs(#command.queues > 0 and command.queues or call('ZRANGE', P .. 'queues', 0, -1)) do
        local room = S.free_slots(queue)
        for _, line in ipairs(seen[queue] and {} or call('SMEMBERS', P .. 'lines:' .. queue)) do
            local new, child, workflow = line:sub(2, 2), line:sub(3, 3), line:sub(4)
            local wanted = line:sub(1, 1) == ready and (known[workflow] or any and workflow ~= EACH)
            if wanted and (new == '1' or returned > 0) and (child == '1' or room > 0) then
                local it = {queue = queue, listed = line, back = new == '0', child = child == '1'}
                add(it, S.ready_set_key(ready, new, child, queue, workflow))
            end
        end
        seen[queue] = true
    end
    table.sort(found, function(one, other) return one.members[1] > other.members[1] end)
    return found
end

local MORE = 20

-- The first of a line was looked at: the line stands where its next belongs. Of the only line more are wanted than of each of many.
local function move_on(lines, line)
    line.at = line.at + 1
    if not line.members[line.at] then
        local more = math.max(math.floor(MORE / (#lines + 1)), 1)
        line.members, line.at = call('ZRANGE', line.key, line.seen, line.seen + more - 1), 1
        line.seen = line.seen + #line.members
    end
    local head = line.members[line.at]
    if not head then
        return
    end
    local low, high = 1, #lines + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        if lines[middle].members[lines[middle].at] > head then
            low = middle + 1
        else
            high = middle
        end
    end
    table.insert(lines, low, line)
end

local function claimable(command)
    come_due()
    local returned = math.min(command.returned or command.limit, command.limit)
    local chosen, taken, back = {}, {}, 0
    local lines = lines_of(command, returned)
    while #chosen < command.limit and #lines > 0 do
        local line = table.remove(lines)
        local used = taken[line.queue] or 0
        local is_full = not line.child and used >= S.free_slots(line.queue)
        if not (line.back and back == returned) and not is_full then  -- else nothing more of this line
            back = back + (line.back and 1 or 0)
            taken[line.queue] = used + (line.child and 0 or 1)
            chosen[#chosen + 1] = {S.pk_of_member(line.members[line.at]), line, line.members[line.at]}
            if #chosen < command.limit then
                move_on(lines, line)
            end
        end
    end
    return chosen
end

-- Those of these ids that are due, by number. A limit holds here too.
local function named(command)
    local found, seen = {}, {}
    for _, id in ipairs(command.ids) do
        local row = not seen[id] and S.row_by_id(id)
        seen[id] = true
        if row and (row.status == 'queued' or row.status == 'waiting') and (row.ready > 0 or row.due <= S.now) then
            found[#found + 1] = row
        end
    end
    table.sort(found, function(one, other) return tonumber(one.pk) < tonumber(other.pk) end)
    for i = #found, command.limit + 1, -1 do
        found[i] = nil
    end
    return found
end

-- It was left by a draining worker, and now is not: a recovery of that drain.
local function recovered(row)
    if row.interrupted and row.left_by and S.hget(P .. 'drain:' .. row.left_by, 'number') then
        local seconds = math.max(S.now - (row.left_at or S.now), 0)
        S.hset(P .. 'recoveries:' .. row.left_by, row.pk, S.text(seconds))
    end
end

local function may_be_abandoned(row)
    return row.abandon_after and row.started and not row.undoing and not row.cancel and row.due + row.abandon_after < S.now
end

-- What is kept of the last execution of a run: a JSON list of texts, in the order of ExecutionRow. It has no end while a worker has the run.
function S.encode_execution(row)
    local ended = not row.worker and (row.released or row.ended)
    return cjson.encode({
        S.text(math.abs(row.fence)), row.claimed_by, row.claimed_host, S.text(row.claimed_pid), S.text(row.claimed),
        ended and S.text(ended) or cjson.null, row.released_as or row.status, row.reason or cjson.null,
    })
end

local function take(row, command)
    if row.claimed then
        S.append_item(P .. 'executions:' .. row.pk, S.encode_execution(row))
    end
    local host, pid = S.host_and_pid(command.worker)
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
        flat[#flat + 1] = S.encode_row(row)
    end
    return flat
end

local fields = {}  -- of one run at a time

local function not_taken(try, key, it)
    try('DEL', key)
    try('HSET', key, unpack(it[1], 1, it[2]))
end

-- The same as `take`, of one that was never claimed, stands in a line and is not in the view. As it is sent; nil if there is more to it
-- than that.
local function take_here(pk, line, member, command, host, pid)
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
    local status, worker, token = fields.status, command.worker, command.token
    S.zrem(line.key, '0', member, P .. 'lines:' .. line.queue, line.listed)
    if status == 'queued' then
        S.zrem(P .. 'oldest:' .. line.queue, fields.created, pk)
    end
    if status == 'queued' and (fields.interrupted or (tonumber(fields.deaths_in_a_row) or 0) > 0) then
        S.zrem(P .. 'returned:' .. line.queue, tonumber(fields.due) or 0, pk)
    end
    S.zrem(P .. 'status:' .. status, pk, pk)
    S.zadd(P .. 'status:running', pk, pk)
    S.zadd(P .. 'held:' .. worker, '0', S.pair(token, pk), P .. 'holders', worker)
    S.count_status_change(line.queue, line.child, status, 'running')
    flat[size + 1], flat[size + 2], flat[size + 3], flat[size + 4] = 'fence', S.text(S.next_fence()), 'status', 'running'
    flat[size + 5], flat[size + 6], flat[size + 7], flat[size + 8] = 'token', token, 'worker', worker
    flat[size + 9], flat[size + 10], flat[size + 11] = 'ready', '0', 'lives'
    flat[size + 12] = S.text((tonumber(fields.lives) or 0) + 1)
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
    flat[last + 1], flat[last + 2] = 'pk', pk
    local sent = cjson.encode(flat)
    -- No claim needs these of its own run.
    flat[last + 1], flat[last + 2], flat[last + 3], flat[last + 4] = 'claimed', S.text(S.now), 'claimed_by', worker
    flat[last + 5], flat[last + 6], flat[last + 7], flat[last + 8] = 'claimed_host', host, 'claimed_pid', pid
    S.update_run_from_tail(pk, not_taken, flat, size + 1, last + 8)
    return sent
end

local function take_in_view(row, command, by_name)
    recovered(row)
    if not by_name and may_be_abandoned(row) then
        S.abandon_if_overdue(row)
    end
    take(row, command)
    return S.encode_row(row)
end

function S.Claim(command)
    local draining = S.draining_flag(command.worker)
    if not draining then
        return S.WORKER
    end
    local again = by_token(command.worker, command.token)
    if #again > 0 then
        return sent(again)
    end
    if draining == 1 then
        return S.DRAINING
    end
    local answer = {'rows'}
    if #command.ids > 0 then
        for _, row in ipairs(named(command)) do
            answer[#answer + 1] = take_in_view(row, command, true)
        end
        return answer
    end
    local host, pid = S.host_and_pid(command.worker)
    for _, place in ipairs(claimable(command)) do
        local pk, line, member = unpack(place)
        answer[#answer + 1] = take_here(pk, line, member, command, host, pid) or take_in_view(S.row(pk), command, false)
    end
    return answer
end
