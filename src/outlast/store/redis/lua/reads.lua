-- Reads. Each answers for one moment. `S.flush` is never called with anything to write.


local R = {}

local function found(row)
    return row and S.encode_row(row) or false
end

function R.run(id)
    return found(S.row_by_id(id))
end

function R.last_seq(run)
    local row = S.row_part(run)
    return row and S.text(row.last) or '0'
end

function R.has_dealt(id)
    local row = S.row_by_id(id)
    return (row and row.dealt or call('EXISTS', P .. 'children:' .. id) == 1) and '1' or '0'
end

local function texts(key, seqs)
    local values = {}
    for start = 1, #seqs, S.CHUNK do
        local some = call('HMGET', key, unpack(seqs, start, math.min(start + S.CHUNK - 1, #seqs)))
        for i = 1, #some do  -- false for what is not there
            values[start + i - 1] = some[i]
        end
    end
    return values
end

-- Entries after a number: seq, text, seq, text. At most `count`, and no more than about `bytes` of them.
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
        local plain = texts(P .. 'journal:' .. run, seqs)
        local dones = has_dones and texts(P .. 'dones:' .. run, seqs) or {}
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

function R.history(run)
    return call('HGETALL', P .. 'journal:' .. run)
end

function R.done(run, ...)
    local keys, answer = {...}, {}
    local seqs = texts(P .. 'done:' .. run, keys)
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
        answer[#answer + 1] = {worker, call('HGETALL', P .. 'drain:' .. worker), call('HVALS', P .. 'recoveries:' .. worker)}
    end
    return answer
end

function R.measured()
    return call('HVALS', P .. 'measured')
end

function R.durations(...)
    local names, answer = {...}, {}
    for i = 1, #names, 2 do
        answer[#answer + 1] = call('LRANGE', P .. 'durations:' .. S.pair(names[i], names[i + 1]), 0, -1)
    end
    return answer
end

-- Who seems dead by lease or was struck off; and who is not connected any more.
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
        local heard = call('PUBSUB', 'NUMSUB', unpack(channels))
        for i = 1, #channels do
            if heard[2 * i] == 0 and call('ZSCORE', P .. 'workers', present[start + i - 1]) then
                missing[#missing + 1] = present[start + i - 1]
            end
        end
    end
    local pulse = call('HMGET', P .. 'pulse', 'server', 'server_since')
    return {dead, missing, pulse}
end

-- Which workflows have something in line, of each queue: ready, and suspect. And the next due time.
function R.look(...)
    local ready, suspect, seen = {}, {}, {}
    for _, queue in ipairs({...}) do
        for _, line in ipairs(call('SMEMBERS', P .. 'lines:' .. queue)) do
            local into, workflow = line:sub(1, 1) == '1' and ready or suspect, line:sub(4)
            if not seen[line:sub(1, 1) .. workflow] then
                seen[line:sub(1, 1) .. workflow] = true
                into[#into + 1] = workflow
            end
        end
    end
    return {ready, suspect, call('ZRANGE', P .. 'later', 0, 0, 'WITHSCORES')[2] or false}
end

local COME_DUE_MAX = 10000  -- each claim makes 1,000 of them ready, so there are more only where nobody claims

-- Of each queue, the queued runs that are due and that no claim has made ready yet: how many, and when the oldest was submitted.
local function come_due()
    local counts, oldest = {}, {}
    for _, pk in ipairs(call('ZRANGEBYSCORE', P .. 'later', '-inf', S.text(S.now), 'LIMIT', 0, COME_DUE_MAX)) do
        local queue, status, created = unpack(call('HMGET', P .. 'run:' .. pk, 'queue', 'status', 'created'))
        if status == 'queued' then
            counts[queue] = (counts[queue] or 0) + 1
            oldest[queue] = math.min(oldest[queue] or math.huge, tonumber(created))
        end
    end
    return counts, oldest
end

-- How many queued runs of a queue could be taken now. The others are delayed.
local function ready_in(queue, due)
    local ready = call('ZCARD', P .. 'oldest:' .. queue) + (due[queue] or 0)
    return math.min(ready, S.status_count(queue, 'queued'))
end

-- What came back, and since when the first of it is due (0 is no time); what is being undone, and what is stuck in that.
local function apart(queue)
    local returned = P .. 'returned:' .. queue
    local since = call('ZRANGEBYSCORE', returned, '(0', S.text(S.now), 'WITHSCORES', 'LIMIT', 0, 1)[2] or false
    local undoing, stuck = call('ZCARD', P .. 'undoing:' .. queue), call('ZCARD', P .. 'stuck:' .. queue)
    return {S.text(call('ZCARD', returned)), since, S.text(undoing), S.text(stuck)}
end

function R.queues()
    local answer = {}
    local due, oldest_due = come_due()
    for _, queue in ipairs(call('ZRANGE', P .. 'queues', 0, -1)) do
        local first = call('ZRANGE', P .. 'oldest:' .. queue, 0, 0, 'WITHSCORES')[2]
        local oldest = math.min(tonumber(first) or math.huge, oldest_due[queue] or math.huge)
        local submitted, ended = S.events_last_minute(queue)
        answer[#answer + 1] = {
            queue, call('HGETALL', P .. 'queue:' .. queue), oldest < math.huge and S.text(oldest) or false,
            S.text(submitted), S.text(ended), apart(queue), S.text(S.status_count(queue, 'queued') - ready_in(queue, due)),
        }
    end
    return answer
end

function R.depth(queue)
    local due = come_due()
    return S.text(ready_in(queue, due))
end

local function held(worker, of)
    local answer = {}
    for _, member in ipairs(call('ZRANGE', P .. 'held:' .. worker, 0, -1)) do
        of(answer, member:match('%d+$'))
    end
    return answer
end

function R.held(worker)
    return held(worker, function(answer, pk)
        local fence, id = unpack(call('HMGET', P .. 'run:' .. pk, 'fence', 'id'))
        answer[#answer + 1] = {pk, fence, id}
    end)
end

function R.cancels(worker)
    return held(worker, function(answer, pk)
        local id, cancel = unpack(call('HMGET', P .. 'run:' .. pk, 'id', 'cancel'))
        if cancel then
            answer[#answer + 1] = {id, cancel}
        end
    end)
end

-- Numbers of runs, greatest first, below one: of statuses, or of a parent's children.
local function numbers(query, keys, count)
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

local SIFTED = {'id', 'status', 'workflow', 'queue', 'parent', 'waits', 'ended', 'created', 'undoing', 'ready', 'due'}

-- Queued, and not due yet.
local function is_delayed(row)
    return row.status == 'queued' and (tonumber(row.ready or '') or 0) == 0 and (tonumber(row.due or '') or 0) > S.now
end

local function fits(query, row)
    local undoing = row.undoing and true or false
    return (not query.statuses or query.statuses[row.status] or query.delayed and is_delayed(row))
        and (query.workflow == nil or row.workflow == query.workflow)
        and (query.queue == nil or row.queue == query.queue)
        and (query.prefix == nil or row.id:sub(1, #query.prefix) == query.prefix)
        and (query.items == nil or (row.workflow == '') == query.items)
        and (query.undoing == nil or undoing == query.undoing)
        and (query.waiting_for == nil or not row.ended and row.waits:find('\n' .. query.waiting_for .. '\n', 1, true))
        and (query.created_before == nil or tonumber(row.created) < query.created_before)
        and (query.created_after == nil or tonumber(row.created) >= query.created_after)
        and (query.ended_after == nil or row.ended and tonumber(row.ended) >= query.ended_after)
end

-- A page of a walk: the number to go on below (false: at the end), and the rows that fit. It looks at no more than `look` rows.
function R.runs(text)
    local query = cjson.decode(text)
    local keys = {}
    for _, status in ipairs(query.of) do
        keys[#keys + 1] = 'status:' .. status
    end
    if query.parent ~= nil then
        keys = {'children:' .. query.parent}
    end
    local rows, all = {}, numbers(query, keys, query.look)
    local at = false
    for i = 1, math.min(#all, query.look) do
        if #rows == query.limit then
            break
        end
        local pk, row = S.text(all[i]), {}
        local values = call('HMGET', P .. 'run:' .. pk, unpack(SIFTED))
        for n, field in ipairs(SIFTED) do
            row[field] = values[n] or nil
        end
        if fits(query, row) then
            rows[#rows + 1] = S.encode_row(S.row(pk))
        end
        at = pk
    end
    return {(#rows == query.limit or #all >= query.look) and at or false, rows}
end

S.header = cjson.decode(ARGV[1])
S.server_time = call('TIME')
S.now = S.header.now or S.server_time[1] + S.server_time[2] / 1000000
return {S.text(S.now), (R[ARGV[2]] or S['read_' .. ARGV[2]])(unpack(ARGV, 3))}
