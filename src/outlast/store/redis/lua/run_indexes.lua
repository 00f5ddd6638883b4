-- Derive from a run's row in which sorted sets it is, and insert new runs. rows.lua calls
-- `S.index_run` for changed rows. The fast paths move a run between the sets themselves and must
-- agree with it.

local text = S.text

-- Return the key of a ready set. It holds the claimable runs of one queue and workflow that agree
-- in `ready` (1, or 2 for suspects), in whether they are new (not interrupted), and in whether they
-- are children ('1'), have a key ('2') or neither ('0'). `lines:<queue>` lists the ready sets of a queue that are not empty.
function S.ready_set_key(ready, new, child, queue, workflow)
    return P .. 'ready:' .. ready .. new .. child .. ':' .. S.pair(queue, workflow)
end

-- Return the member for a run. All scores are 0, so members are ordered by their bytes, and the
-- bytes of doubles that are not negative sort like the numbers. So the order is: highest priority,
-- earliest interruption, earliest due time, lowest pk.
local function member(pk, priority, interrupted, due)
    return struct.pack(
        '>dddd', 2 ^ 52 - priority, math.max(interrupted or S.NEVER, 0), math.max(due, 0),
        tonumber(pk)
    )
end

-- Return the place of a run in its lane, given its fields as texts: see keys.lua.
function S.place_in_lane(fields, pk)
    local priority = tonumber(fields.priority)
    return member(pk, priority, tonumber(fields.interrupted), tonumber(fields.due))
end

-- Return the pk of the run that is a member of a ready set.
function S.pk_of_member(member_)
    return string.format('%.0f', (struct.unpack('>d', member_, 25)))
end

-- The functions below call `act`, which is S.zadd or S.zrem, for the sorted sets that a run is in.

local function index_claimable(act, row, get, status)
    local ready, interrupted, due = get(row, 'ready'), get(row, 'interrupted'), get(row, 'due')
    if ready > 0 then
        local new = interrupted and '0' or '1'
        local child = row.parent and '1' or row.key and '2' or '0'
        local key = S.ready_set_key(text(ready), new, child, row.queue, row.workflow)
        local listed = text(ready) .. new .. child .. row.workflow
        local place = row.key and get(row, 'turn') or due
        local at = member(row.pk, get(row, 'priority'), interrupted, place)
        act(key, '0', at, P .. 'lines:' .. row.queue, listed)
    elseif ready == 0 and (status == 'queued' or status == 'waiting') and due < S.NEVER then
        act(P .. 'later', due, row.pk)
    end
    if ready ~= 0 and status == 'queued' then
        act(P .. 'oldest:' .. row.queue, row.created, row.pk)
    end
end

-- Index a run with a key: in its lane or as the head of it, while it executes, and by its start.
local function index_for_key(act, row, get, status)
    local ready, started = get(row, 'ready'), get(row, 'started')
    local of_key = S.pair(row.queue, row.key)
    if ready ~= 0 and not (ready > 0 and get(row, 'undoing')) then
        local interrupted, due = get(row, 'interrupted'), get(row, 'due')
        local place = member(row.pk, get(row, 'priority'), interrupted, due)
        local in_lane = S.lane_of(ready, started, row.workflow) .. place
        if ready < 0 then
            act(P .. 'gated:' .. of_key, '0', in_lane, P .. 'keys:' .. row.queue, row.key)
        else
            act(P .. 'heads:' .. of_key, '0', in_lane, P .. 'head_keys:' .. row.queue, row.key)
        end
    end
    if status == 'running' then
        act(P .. 'key_running:' .. of_key, row.pk, row.pk)
    end
    if started then
        act(P .. 'key_started:' .. of_key, started, row.pk)
    end
end

local function index_ended(act, row, status, ended)
    if ended then
        act(P .. (row.workflow == '' and status == 'done' and 'acked' or 'ended'), ended, row.pk)
    end
end

local function index_held(act, row, worker, token)
    if worker then
        act(P .. 'held:' .. worker, '0', S.pair(token or '', row.pk), P .. 'holders', worker)
    end
end

local UNDOING = {queued = true, running = true, waiting = true}

-- Index the runs that the listing of queues counts: those that returned after an interruption or a
-- death, and those that are being compensated or were parked during compensation.
local function index_for_queue_listing(act, row, get, status)
    local returned = get(row, 'interrupted') or (get(row, 'deaths_in_a_row') or 0) > 0
    if status == 'queued' and returned then
        act(P .. 'returned:' .. row.queue, get(row, 'due'), row.pk)
    end
    if get(row, 'undoing') and (UNDOING[status] or status == 'parked') then
        act(P .. (UNDOING[status] and 'undoing:' or 'stuck:') .. row.queue, row.pk, row.pk)
    end
end

-- Call `act` for every sorted set that a run is in, except its parent's children. `get` returns
-- the stored or the current value of a field.
function S.index_run(act, row, get)
    local status = get(row, 'status')
    if status then
        act(P .. 'status:' .. status, row.pk, row.pk)
        index_held(act, row, get(row, 'worker'), get(row, 'token'))
        index_ended(act, row, status, get(row, 'ended'))
        index_claimable(act, row, get, status)
        if row.key then
            index_for_key(act, row, get, status)
        end
        index_for_queue_listing(act, row, get, status)
    end
end

-- Fields that not every new run has.
local OPTIONAL = {
    'parent', 'worker', 'lives', 'started', 'claimed', 'claimed_by', 'claimed_host', 'claimed_pid',
    'timeout', 'deadline', 'abandon_after', 'by', 'key',
}

local function field_of(row, field)
    return row[field]
end

local function revert_insert(try, key)
    try('UNLINK', key)
end

-- Insert a run. `row` is a Submit command with status, due time and the like added; it gets a pk
-- and the time of its creation. Return its fields (name, value, ...).
function S.insert_run(row)
    local pk = text(S.next_pk())
    row.pk, row.created = pk, S.now
    local flat = {
        'fence', text(row.fence or 0), 'status', row.status, 'token', row.token,
        'workflow', row.workflow, 'queue', row.queue, 'id', row.id, 'args', row.args,
        'priority', text(row.priority), 'seed', row.seed, 'attempts_max', text(row.attempts_max),
        'interruptions_max', text(row.interruptions_max), 'waits', '', 'created', text(S.now),
        'due', text(row.due),
    }
    if row.ready ~= 0 then
        flat[#flat + 1], flat[#flat + 2] = 'ready', text(row.ready)
    end
    for _, field in ipairs(OPTIONAL) do
        local value = row[field]
        if value then
            local size = #flat
            flat[size + 1], flat[size + 2] = field, type(value) == 'number' and text(value) or value
        end
    end
    S.update_run(pk, revert_insert, nil, flat)
    S.hset_new(P .. 'ids', row.id, pk)
    S.zadd(P .. 'run_ids', 0, row.id)
    S.count_status_change(row.queue, row.parent, nil, row.status)
    S.count_event(row.queue, 's', S.now)
    if row.parent then
        S.zadd(P .. 'children:' .. row.parent, pk, pk)
    end
    S.index_run(S.zadd, row, field_of)
    if row.ready < 0 then
        S.note_key(row.queue, row.key, 0)
    end
    return flat
end
