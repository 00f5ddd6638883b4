-- In which sorted sets a run is follows from its row, here and nowhere else. And new runs.

local text = S.text

-- Ready runs of one kind stand in one line, by priority, interruption, due time and number.
function S.ready_set_key(ready, new, child, queue, workflow)
    return P .. 'ready:' .. ready .. new .. child .. ':' .. S.pair(queue, workflow)
end

-- Doubles that are not negative sort like their bytes, the greatest first.
local function member(row, interrupted, due)
    return struct.pack('>dddd', 2 ^ 52 - row.priority, math.max(interrupted or S.NEVER, 0), math.max(due, 0), tonumber(row.pk))
end

function S.pk_of_member(member_)
    return string.format('%.0f', (struct.unpack('>d', member_, 25)))
end

local function place_waiting(act, row, status, ready, interrupted, due)
    if ready > 0 then
        local new, child = interrupted and '0' or '1', row.parent and '1' or '0'
        local line = S.ready_set_key(text(ready), new, child, row.queue, row.workflow)
        act(line, '0', member(row, interrupted, due), P .. 'lines:' .. row.queue, text(ready) .. new .. child .. row.workflow)
        if status == 'queued' then
            act(P .. 'oldest:' .. row.queue, row.created, row.pk)
        end
    elseif (status == 'queued' or status == 'waiting') and due < S.NEVER then
        act(P .. 'later', due, row.pk)
    end
end

local function place_ended(act, row, status, ended)
    if ended then
        act(P .. (row.workflow == '' and status == 'done' and 'acked' or 'ended'), ended, row.pk)
    end
end

local function place_held(act, row, worker, token)
    if worker then
        act(P .. 'held:' .. worker, '0', S.pair(token or '', row.pk), P .. 'holders', worker)
    end
end

local UNDOING = {queued = true, running = true, waiting = true}

-- For those who look at queues: what came back, and what is being undone.
local function place_apart(act, row, get, status)
    if status == 'queued' and (get(row, 'interrupted') or (get(row, 'deaths_in_a_row') or 0) > 0) then
        act(P .. 'returned:' .. row.queue, get(row, 'due'), row.pk)
    end
    if get(row, 'undoing') and (UNDOING[status] or status == 'parked') then
        act(P .. (UNDOING[status] and 'undoing:' or 'stuck:') .. row.queue, row.pk, row.pk)
    end
end

-- Every sorted set that a run is in, by what its fields were or are.
function S.index_run(act, row, get)
    local status = get(row, 'status')
    if status then
        act(P .. 'status:' .. status, row.pk, row.pk)
        place_held(act, row, get(row, 'worker'), get(row, 'token'))
        place_ended(act, row, status, get(row, 'ended'))
        place_waiting(act, row, status, get(row, 'ready'), get(row, 'interrupted'), get(row, 'due'))
        place_apart(act, row, get, status)
    end
end

-- What a new run may have.
local OPTIONAL = {
    'parent', 'worker', 'lives', 'started', 'claimed', 'claimed_by', 'claimed_host', 'claimed_pid', 'timeout', 'deadline', 'abandon_after',
}

local function is(row, field)
    return row[field]
end

local function not_inserted(try, key)
    try('UNLINK', key)
end

-- A new run: what is asked for, with its status, due time and the like. It is where that says. As it is sent.
function S.insert_run(row)
    local pk = text(S.next_pk())
    row.pk, row.created = pk, S.now
    local flat = {
        'fence', text(row.fence or 0), 'status', row.status, 'token', row.token, 'workflow', row.workflow, 'queue', row.queue, 'id', row.id,
        'args', row.args, 'priority', text(row.priority), 'seed', row.seed, 'attempts_max', text(row.attempts_max), 'interruptions_max',
        text(row.interruptions_max), 'waits', '', 'created', text(S.now), 'due', text(row.due),
    }
    if row.ready > 0 then
        flat[#flat + 1], flat[#flat + 2] = 'ready', text(row.ready)
    end
    for _, field in ipairs(OPTIONAL) do
        local value = row[field]
        if value then
            local size = #flat
            flat[size + 1], flat[size + 2] = field, type(value) == 'number' and text(value) or value
        end
    end
    S.update_run(pk, not_inserted, nil, flat)
    S.hset_new(P .. 'ids', row.id, pk)
    S.count_status_change(row.queue, row.parent, nil, row.status)
    S.count_event(row.queue, 's', S.now)
    if row.parent then
        S.zadd(P .. 'children:' .. row.parent, pk, pk)
    end
    S.index_run(S.zadd, row, is)
    return flat
end
