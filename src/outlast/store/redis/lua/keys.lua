-- Let the runs of each key take turns, within the limits of their queue. The runs of a queue, key
-- and workflow that are due form a lane. Those that have started before, the suspects and the new
-- ones are lanes of their own (`ready` is -1, -2 or -3). Only the first run of a lane, its head, is
-- in a ready set, and only while the limits of the key allow it to be claimed.
--
-- `key_changes:<queue>` has the keys that something happened to, by the time from which the next claim
-- reviews them. What executes and what has started is counted by the sorted sets of the runs.

local text = S.text
local NEW = '-3'
local REVIEWS_MAX = 1000  -- the most keys that one claim reviews
local TURN_STEP = S.TURN_STEP

-- Return the lane of a run: `ready` while it is held back, and its workflow.
function S.lane_of(ready, started, workflow)
    local kind = ready < 0 and text(ready) or ready == 2 and '-2' or started and '-1' or NEW
    return kind .. S.pair(workflow, '')
end

-- Return `ready` for a run that is due but must take its turn.
local function held_back(row)
    return row.ready == 2 and -2 or row.started and -1 or -3
end

-- Note that a key must be reviewed, at the latest at the time `at`.
function S.note_key(queue, key, at)
    local changes = P .. 'key_changes:' .. queue
    local before = call('ZSCORE', changes, key)
    if not before or tonumber(before) > at then
        local inverse = before and {'ZADD', changes, before, key} or {'ZREM', changes, key}
        S.write(inverse, 'ZADD', changes, text(at), key)
    end
end

-- Apply the rules for runs with a key to a changed row: whatever makes it ready only puts it into
-- its lane. The key is reviewed then, and when the run stops executing or gives up its turn.
-- `stored` returns the value of a field before the changes.
function S.apply_key_rules(row, stored)
    if row.ready > 0 and not row.turn and not row.undoing then
        S.put(row, 'ready', held_back(row))
    elseif row.ready == 0 and row.turn then
        S.put(row, 'turn', nil)
    end
    local was, status = stored(row, 'ready') or 0, row.status
    local has_come = row.ready < 0 and was >= 0 and not stored(row, 'turn')
    local has_stopped = stored(row, 'status') == 'running' and status ~= 'running'
    local is_gone = was ~= 0 and row.ready == 0 and status ~= 'running'
    if has_come or has_stopped or is_gone or row.undoing and not stored(row, 'undoing') then
        S.note_key(row.queue, row.key, 0)
    end
end

-- Return the room of a key: whether there is a limit to what executes, how many slots are free, and
-- how many new runs have started in this round.
local function load_room(queue, key)
    local most = S.queue_limit(queue, 'key_concurrency_max')
    local running = most and call('ZCARD', P .. 'key_running:' .. S.pair(queue, key))
    return {slots = most and most - running or math.huge, new = 0}
end

-- Return when the rate of a key allows the next new run to start, if `more` others start now; nil
-- if that is now.
local function opens_at(queue, key, more)
    local most, period = S.queue_limit(queue, 'key_starts_max'), S.queue_limit(queue, 'key_period')
    if not most then
        return nil
    end
    if more >= most then
        return S.now + period
    end
    local at = text(most - 1 - more)
    local started = P .. 'key_started:' .. S.pair(queue, key)
    local score = call('ZREVRANGE', started, at, at, 'WITHSCORES')[2]
    local opens = score and tonumber(score) + period
    return opens and opens > S.now and opens or nil
end

-- Return a function that says whether another run of a key may execute, and counts it if so. All
-- changes must have been written.
function S.key_admission()
    local rooms = {}
    return function(queue, key, is_new)
        local member = S.pair(queue, key)
        local room = rooms[member] or load_room(queue, key)
        rooms[member] = room
        if room.slots <= 0 or is_new and opens_at(queue, key, room.new) then
            return false
        end
        room.slots, room.new = room.slots - 1, room.new + (is_new and 1 or 0)
        return true, room
    end
end

-- Split the member of a sorted set of lanes into the lane and the member of the run.
local function split(member)
    local size = member:match('^%-%d(%d+):')
    local stop = 2 + #size + 1 + tonumber(size) + 1
    return member:sub(1, stop), member:sub(stop + 1)
end

-- Return the first run of each lane of a key, by lane.
local function first_of_lanes(key)
    local found, from = {}, '-'
    while true do
        local member = call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, 1)[1]
        if not member then
            return found
        end
        local lane, run = split(member)
        found[lane], from = run, '(' .. lane .. '\255'
    end
end

-- Return the place in a ready set that the first run of a key will have when it gets its turn, after
-- a run with the turn `after` was claimed. `room` is what is left for the key. Return nil if no run
-- can get one.
function S.next_place(queue, key, after, room)
    local opens, least = room.slots > 0 and opens_at(queue, key, room.new), nil
    for lane, run in pairs(room.slots > 0 and first_of_lanes(P .. 'gated:' .. S.pair(queue, key)) or {}) do
        if not (opens and lane:sub(1, 2) == NEW) then
            local turn = struct.pack('>d', math.max(S.now, after) + TURN_STEP)
            local place = run:sub(1, 16) .. turn .. run:sub(25)
            least = least and least < place and least or place
        end
    end
    return least
end

local function give_turn(run, turn)
    local row = S.row(S.pk_of_member(run))
    S.put(row, 'turn', turn)
    S.put(row, 'ready', row.ready == -2 and 2 or 1)
end

local function take_turn(run)
    local row = S.row(S.pk_of_member(run))
    S.put(row, 'ready', held_back(row))
    S.put(row, 'turn', nil)
end

-- Give turns to the first runs of a key, and take them from all others. `after` is the turn of a
-- run that was just claimed: the next one goes behind all others that have their turns by now.
-- Return whether any run got a turn. All changes must have been written.
function S.review_key(queue, key, after)
    local member = S.pair(queue, key)
    local firsts, heads = first_of_lanes(P .. 'gated:' .. member), {}
    local lanes, given = {}, false
    for _, head in ipairs(call('ZRANGE', P .. 'heads:' .. member, 0, -1)) do
        local lane, run = split(head)
        heads[lane], lanes[lane] = run, true
    end
    for lane in pairs(firsts) do
        lanes[lane] = true
    end
    if not next(lanes) then
        return false
    end
    local room = load_room(queue, key)
    local opens = room.slots > 0 and opens_at(queue, key, 0)
    local turn = after and math.max(S.now, after) + TURN_STEP or S.now
    for lane in pairs(lanes) do
        local is_new = lane:sub(1, 2) == NEW
        local is_open = room.slots > 0 and not (is_new and opens)
        local first, head = firsts[lane], heads[lane]
        if head and (not is_open or first and first < head) then
            take_turn(head)
            head = nil
        end
        if is_open and first and not head then
            give_turn(first, turn)
            given = true
        end
        if is_new and opens then
            S.note_key(queue, key, opens)
        end
    end
    return given
end

-- Review the keys of a queue that something happened to since the last claim.
function S.review_changed_keys(queue)
    local changes = P .. 'key_changes:' .. queue
    local found = call(
        'ZRANGEBYSCORE', changes, '-inf', text(S.now), 'WITHSCORES', 'LIMIT', 0, REVIEWS_MAX
    )
    for i = 1, #found, 2 do
        S.write({'ZADD', changes, found[i + 1], found[i]}, 'ZREM', changes, found[i])
    end
    for i = 1, #found, 2 do
        S.review_key(queue, found[i], nil)
    end
    if #found > 0 then
        S.flush()
    end
end

-- Let the next claims review all keys of a queue that have due runs.
function S.note_keys_of(queue)
    for _, set in ipairs({'keys:', 'head_keys:'}) do
        for _, key in ipairs(call('SMEMBERS', P .. set .. queue)) do
            S.note_key(queue, key, 0)
        end
    end
end
