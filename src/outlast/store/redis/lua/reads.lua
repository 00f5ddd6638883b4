-- The main part of the read script, and the reads of runs, workers and queues. session_reads.lua
-- has those of sessions. `Reads` in Python calls one of them by name. It is one script call, so the
-- answer is consistent. Functions that call `S.flush` have nothing to write here.

local R = {}

function R.run(id)
    local row = S.row_by_id(id)
    return row and S.encode_row(row) or false
end

function R.last_seq(run)
    local row = S.row_part(run)
    return row and S.text(row.last) or '0'
end

function R.may_need_compensation(id)
    local row = S.row_by_id(id)
    return (row and row.dealt or call('EXISTS', P .. 'children:' .. id) == 1) and '1' or '0'
end

-- Return the values of these fields of a hash, false for those that do not exist.
local function values_of(key, fields)
    local values = {}
    for start = 1, #fields, S.CHUNK do
        local stop = math.min(start + S.CHUNK - 1, #fields)
        local some = call('HMGET', key, unpack(fields, start, stop))
        for i = 1, #some do
            values[start + i - 1] = some[i]
        end
    end
    return values
end

-- Return the entries after a seq (seq, text, ...), at most `count` and about `bytes` bytes.
function R.journal(run, after, count, bytes)
    local row = S.row_part(run)
    local answer, size = {}, 0
    local seq, last = tonumber(after), row and row.last or 0
    local has_dones = call('EXISTS', P .. 'dones:' .. run) == 1
    while seq < last and #answer < 2 * tonumber(count) and size < tonumber(bytes) do
        local seqs = {}
        for i = seq + 1, math.min(last, seq + math.min(100, tonumber(count) - #answer / 2)) do
            seqs[#seqs + 1] = S.text(i)
        end
        local plain = values_of(P .. 'journal:' .. run, seqs)
        local dones = has_dones and values_of(P .. 'dones:' .. run, seqs) or {}
        for i, number in ipairs(seqs) do
            local text = plain[i] or dones[i]
            if text then
                answer[#answer + 1], answer[#answer + 2] = number, text
                size = size + #text
            end
        end
        seq = seq + #seqs
    end
    return answer
end

-- Return all entries but the `done` ones, in any order.
function R.history(run)
    return call('HGETALL', P .. 'journal:' .. run)
end

-- Return the `done` entries with these keys (key, text, ...).
function R.done(run, ...)
    local keys, answer = {...}, {}
    local seqs = values_of(P .. 'done:' .. run, keys)
    for i, key in ipairs(keys) do
        if seqs[i] then
            answer[#answer + 1] = key
            answer[#answer + 1] = call('HGET', P .. 'dones:' .. run, seqs[i])
        end
    end
    return answer
end

function R.done_count(run)
    return S.text(call('HLEN', P .. 'dones:' .. run))
end

function R.executions(run)
    local row = S.row(run)
    local answer = call('LRANGE', P .. 'executions:' .. run, 0, -1)
    if row and row.claimed then
        answer[#answer + 1] = S.encode_execution(row)
    end
    return answer
end

function R.messages(run, after)
    return call('LRANGE', P .. 'mail:' .. run, after, -1)
end

function R.progress(run)
    return call('HGETALL', P .. 'progress:' .. run)
end

function R.workers()
    local answer = {}
    for _, worker in ipairs(call('ZRANGE', P .. 'workers', 0, -1)) do
        local flat = call('HGETALL', P .. 'worker:' .. worker)
        local held = call('ZCARD', P .. 'held:' .. worker)
        flat[#flat + 1], flat[#flat + 2] = 'held', S.text(held)
        flat[#flat + 1], flat[#flat + 2] = 'id', worker
        answer[#answer + 1] = flat
    end
    return answer
end

function R.asked(worker)
    return S.hget(P .. 'worker:' .. worker, 'asked') or false
end

function R.drains(limit)
    local answer = {}
    for _, worker in ipairs(call('ZREVRANGE', P .. 'drains', 0, tonumber(limit) - 1)) do
        local report = call('HGETALL', P .. 'drain:' .. worker)
        answer[#answer + 1] = {worker, report, call('HVALS', P .. 'recoveries:' .. worker)}
    end
    return answer
end

function R.measured()
    return call('HVALS', P .. 'measured')
end

function R.durations(...)
    local names, answer = {...}, {}
    for i = 1, #names, 2 do
        local key = P .. 'durations:' .. S.pair(names[i], names[i + 1])
        answer[#answer + 1] = call('LRANGE', key, 0, -1)
    end
    return answer
end

-- Return the workers whose lease has ended or that hold runs without being registered, the workers
-- that are no longer connected, and the id and start of the server as stored in `pulse`.
function R.dead_workers()
    local dead = call('ZRANGEBYSCORE', P .. 'leased', '-inf', S.text(S.now))
    for _, worker in ipairs(call('SMEMBERS', P .. 'holders')) do
        if not call('ZSCORE', P .. 'workers', worker) then
            dead[#dead + 1] = worker
        end
    end
    local missing, present = {}, call('SMEMBERS', P .. 'present')
    for start = 1, #present, S.CHUNK do
        local channels = {}
        for i = start, math.min(start + S.CHUNK - 1, #present) do
            channels[#channels + 1] = P .. 'alive:' .. S.header.db .. ':' .. present[i]
        end
        local subscribers = call('PUBSUB', 'NUMSUB', unpack(channels))
        for i = 1, #channels do
            local worker = present[start + i - 1]
            if subscribers[2 * i] == 0 and call('ZSCORE', P .. 'workers', worker) then
                missing[#missing + 1] = worker
            end
        end
    end
    local pulse = call('HMGET', P .. 'pulse', 'server', 'server_since')
    return {dead, missing, pulse}
end

-- Return which workflows have ready runs in these queues, which have ready suspects, and when the
-- next run that is not ready comes due, or the next key must be reviewed.
function R.peek(...)
    local ready, suspect, seen = {}, {}, {}
    for _, queue in ipairs({...}) do
        for _, ready_set in ipairs(call('SMEMBERS', P .. 'lines:' .. queue)) do
            local kind, workflow = ready_set:sub(1, 1), ready_set:sub(4)
            if not seen[kind .. workflow] then
                local found = kind == '1' and ready or suspect
                seen[kind .. workflow] = true
                found[#found + 1] = workflow
            end
        end
    end
    local due = call('ZRANGE', P .. 'later', 0, 0, 'WITHSCORES')[2]
    for _, queue in ipairs({...}) do
        local change = call('ZRANGE', P .. 'key_changes:' .. queue, 0, 0, 'WITHSCORES')[2]
        if not due or change and tonumber(change) < tonumber(due) then
            due = change or due
        end
    end
    return {ready, suspect, due or false}
end

-- The most due runs to count. Each claim makes 1,000 ready, so there are more only if no worker
-- claims.
local DUE_MAX = 10000

-- Count the queued runs that are due but that no claim has made ready yet. Return by queue how many
-- there are, and when the oldest was submitted.
local function count_due()
    local counts, oldest = {}, {}
    local now = S.text(S.now)
    for _, pk in ipairs(call('ZRANGEBYSCORE', P .. 'later', '-inf', now, 'LIMIT', 0, DUE_MAX)) do
        local fields = call('HMGET', P .. 'run:' .. pk, 'queue', 'status', 'created')
        local queue, status, created = unpack(fields)
        if status == 'queued' then
            counts[queue] = (counts[queue] or 0) + 1
            oldest[queue] = math.min(oldest[queue] or math.huge, tonumber(created))
        end
    end
    return counts, oldest
end

-- Return how many queued runs of a queue could be claimed now. The others are delayed.
local function count_ready(queue, due)
    local ready = call('ZCARD', P .. 'oldest:' .. queue) + (due[queue] or 0)
    return math.min(ready, S.status_count(queue, 'queued'))
end

-- Return how many runs of a queue have returned after an interruption or a death, since when the
-- first of these is due (a due time of 0 does not count), how many are being compensated, and how
-- many were parked during compensation.
local function returned_and_undoing(queue)
    local returned = P .. 'returned:' .. queue
    local now = S.text(S.now)
    local first = call('ZRANGEBYSCORE', returned, '(0', now, 'WITHSCORES', 'LIMIT', 0, 1)
    local undoing = call('ZCARD', P .. 'undoing:' .. queue)
    local stuck = call('ZCARD', P .. 'stuck:' .. queue)
    return {S.text(call('ZCARD', returned)), first[2] or false, S.text(undoing), S.text(stuck)}
end

function R.queues()
    local answer = {}
    local due, oldest_due = count_due()
    for _, queue in ipairs(call('ZRANGE', P .. 'queues', 0, -1)) do
        local first = call('ZRANGE', P .. 'oldest:' .. queue, 0, 0, 'WITHSCORES')[2]
        local oldest = math.min(tonumber(first) or math.huge, oldest_due[queue] or math.huge)
        local submitted, ended = S.events_last_minute(queue)
        local delayed = S.status_count(queue, 'queued') - count_ready(queue, due)
        answer[#answer + 1] = {
            queue, call('HGETALL', P .. 'queue:' .. queue),
            oldest < math.huge and S.text(oldest) or false, S.text(submitted), S.text(ended),
            returned_and_undoing(queue), S.text(delayed),
        }
    end
    return answer
end

-- Return how many runs of a queue could be claimed now.
function R.depth(queue)
    local due = count_due()
    return S.text(count_ready(queue, due))
end

-- Call `add` with the answer and the pk of each run that a worker holds. Return the answer.
local function for_each_held(worker, add)
    local answer = {}
    for _, member in ipairs(call('ZRANGE', P .. 'held:' .. worker, 0, -1)) do
        add(answer, member:match('%d+$'))
    end
    return answer
end

function R.held(worker)
    return for_each_held(worker, function(answer, pk)
        local fence, id = unpack(call('HMGET', P .. 'run:' .. pk, 'fence', 'id'))
        answer[#answer + 1] = {pk, fence, id}
    end)
end

function R.cancels(worker)
    return for_each_held(worker, function(answer, pk)
        local id, cancel = unpack(call('HMGET', P .. 'run:' .. pk, 'id', 'cancel'))
        if cancel then
            answer[#answer + 1] = {id, cancel}
        end
    end)
end

-- Return the pks in these sorted sets, newest first: up to `count` of each, below `query.before`.
local function pks_in(query, keys, count)
    local all = {}
    for _, key in ipairs(keys) do
        local below = query.before and '(' .. S.text(query.before) or '+inf'
        for _, pk in ipairs(call('ZREVRANGEBYSCORE', P .. key, below, '-inf', 'LIMIT', 0, count)) do
            all[#all + 1] = tonumber(pk)
        end
    end
    table.sort(all, function(one, other) return one > other end)
    return all
end

-- The fields that a query can filter by.
local FILTER_FIELDS = {
    'id', 'status', 'workflow', 'queue', 'parent', 'waits', 'ended', 'created', 'undoing', 'ready',
    'due', 'by', 'key', 'worker',
}

-- Return whether a run is queued but not due yet.
local function is_delayed(row)
    local ready, due = tonumber(row.ready or '') or 0, tonumber(row.due or '') or 0
    return row.status == 'queued' and ready == 0 and due > S.now
end

-- Return whether a run waits for a message of this name.
local function is_waiting_for(row, name)
    return not row.ended and row.waits:find('\n' .. name .. '\n', 1, true)
end

local function awaits_message(row)
    return not row.ended and (row.waits or '') ~= ''
end

local function matches(query, row)
    local undoing = row.undoing and true or false
    return (not query.statuses or query.statuses[row.status] or query.delayed and is_delayed(row))
        and (query.workflow == nil or row.workflow == query.workflow)
        and (query.queue == nil or row.queue == query.queue)
        and (query.parent == nil or row.parent == query.parent)
        and (query.by == nil or row.by == query.by)
        and (query.key == nil or row.key == query.key)
        and (query.items == nil or (row.workflow == '') == query.items)
        and (query.undoing == nil or undoing == query.undoing)
        and (query.worker == nil or row.worker == query.worker)
        and (query.awaits_message == nil or awaits_message(row) == query.awaits_message)
        and (query.waiting_for == nil or is_waiting_for(row, query.waiting_for))
        and (query.created_before == nil or tonumber(row.created) < query.created_before)
        and (query.created_after == nil or tonumber(row.created) >= query.created_after)
        and (query.ended_after == nil or row.ended and tonumber(row.ended) >= query.ended_after)
end

-- Return a page of the pks of runs, in the order of their ids: the last id of the page (false at
-- the end), and the pks.
function R.pks_with_prefix(text)
    local query = cjson.decode(text)
    local low, high = (query.above and '(' or '[') .. query.low, query.high and '(' .. query.high or '+'
    local ids = call('ZRANGEBYLEX', P .. 'run_ids', low, high, 'LIMIT', 0, query.look)
    if #ids == 0 then
        return {false, {}}
    end
    return {#ids == query.look and ids[#ids] or false, call('HMGET', P .. 'ids', unpack(ids))}
end

-- Return a page of runs, newest first: the pk below which the next page begins (false at the end),
-- and the rows that match. A page checks at most `look` rows.
function R.runs(text)
    local query = cjson.decode(text)
    local keys = {}
    for _, status in ipairs(query.pks and {} or query.of) do
        keys[#keys + 1] = 'status:' .. status
    end
    if query.parent ~= nil then
        keys = {'children:' .. query.parent}
    end
    local rows, all = {}, query.pks or pks_in(query, keys, query.look)
    local at = false
    for i = 1, math.min(#all, query.look) do
        if #rows == query.limit then
            break
        end
        local pk, row = S.text(all[i]), {}
        local values = call('HMGET', P .. 'run:' .. pk, unpack(FILTER_FIELDS))
        for n, field in ipairs(FILTER_FIELDS) do
            row[field] = values[n] or nil
        end
        if row.id and matches(query, row) then
            rows[#rows + 1] = S.encode_row(S.row(pk))
        end
        at = pk
    end
    return {(#rows == query.limit or #all >= query.look) and at or false, rows}
end

-- Return how the latest runs and items ended: for each status how many there are, their deaths and
-- interruptions, and when the first of them ended.
function R.ends(after, limit)
    local latest = {}
    for _, key in ipairs({'ended', 'acked'}) do
        local found = call('ZREVRANGEBYSCORE', P .. key, '+inf', after, 'WITHSCORES', 'LIMIT', 0, limit)
        for i = 1, #found, 2 do
            latest[#latest + 1] = {pk = found[i], ended = tonumber(found[i + 1])}
        end
    end
    table.sort(latest, function(one, other) return one.ended > other.ended end)
    local counts, order = {}, {}
    for i = 1, math.min(#latest, tonumber(limit)) do
        local status, deaths, interruptions = unpack(
            call('HMGET', P .. 'run:' .. latest[i].pk, 'status', 'deaths', 'interruptions'))
        local count = status and (counts[status] or {runs = 0, deaths = 0, interruptions = 0})
        if count then
            if not counts[status] then
                counts[status] = count
                order[#order + 1] = status
            end
            count.runs = count.runs + 1
            count.deaths = count.deaths + (tonumber(deaths or '') or 0)
            count.interruptions = count.interruptions + (tonumber(interruptions or '') or 0)
            count.first = latest[i].ended
        end
    end
    table.sort(order)
    local answer = {}
    for _, status in ipairs(order) do
        local one = counts[status]
        answer[#answer + 1] = {
            status, S.text(one.runs), S.text(one.deaths), S.text(one.interruptions),
            S.text(one.first),
        }
    end
    return answer
end

S.header = cjson.decode(ARGV[1])
S.server_time = call('TIME')
S.now = S.header.now or S.server_time[1] + S.server_time[2] / 1000000
return {S.text(S.now), (R[ARGV[2]] or S['read_' .. ARGV[2]])(unpack(ARGV, 3))}
