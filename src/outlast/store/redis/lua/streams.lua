-- Streams. The rules are numbered in the command Publish. `streams:` has the bounds of each stream, `parts:` what is known of each part,
-- and `chunks:` a sorted set per stream: each member is one row, with the position of its first value as its score.

local function chunks_key(pk, stream)
    return P .. 'chunks:' .. pk .. ':' .. stream
end

local function numbers(text, count)
    local found = {}
    for number in text:gmatch('%S+') do
        found[#found + 1] = tonumber(number)
    end
    return #found == count and found or error('a stream has ' .. text .. ' instead of numbers')
end

local function bounds(pk, stream)
    return unpack(numbers(S.hget(P .. 'streams:' .. pk, stream) or '0 0', 2))
end

local function set_bounds(pk, stream, start, stop)
    S.hset(P .. 'streams:' .. pk, stream, S.text(start) .. ' ' .. S.text(stop))
end

local function part_of(pk, stream, writer)
    local text = S.hget(P .. 'parts:' .. pk, S.pair(stream, writer))
    if text then
        local fence, attempt, length, first = unpack(numbers(text, 4))
        return {fence = fence, attempt = attempt, length = length, first = first}
    end
end

local function set_part(pk, stream, writer, part)
    local text = {S.text(part.fence), S.text(part.attempt), S.text(part.length), S.text(part.first)}
    S.hset(P .. 'parts:' .. pk, S.pair(stream, writer), table.concat(text, ' '))
end

-- A row as a text: the position of its first value, how many it has, its writer, and the JSON array.
local function add(key, chunk)
    local head = S.text(chunk.first) .. ' ' .. S.text(chunk.count) .. ' '
    S.zadd(key, chunk.first, head .. S.pair(chunk.writer, chunk.value))
end

local function parsed(member)
    local first, count, length, rest = member:match('^(%d+) (%d+) (%d+):(.*)$')
    length = tonumber(length)
    return {
        first = tonumber(first), count = tonumber(count), writer = rest:sub(1, length), value = rest:sub(length + 2), member = member,
    }
end

-- The rows from a position on. What is to be written is written first.
local function chunks_from(key, first)
    S.flush()
    local found = {}
    for _, member in ipairs(call('ZRANGEBYSCORE', key, S.text(first), '+inf')) do
        found[#found + 1] = parsed(member)
    end
    return found
end

-- Begin a new generation without the writer's part.
local function replace(command, pk)
    local stream, key = command.stream, chunks_key(pk, command.stream)
    local _, stop = bounds(pk, stream)
    local start, moved = stop + 1, {}
    stop = start
    for _, chunk in ipairs(chunks_from(key, 0)) do
        S.zrem(key, chunk.first, chunk.member)
        if chunk.writer ~= command.writer then
            moved[chunk.writer] = moved[chunk.writer] or stop
            chunk.first = stop
            add(key, chunk)
            stop = stop + chunk.count
        end
    end
    for writer, first in pairs(moved) do
        local part = part_of(pk, stream, writer)
        part.first = first
        set_part(pk, stream, writer, part)
    end
    set_bounds(pk, stream, start, stop)
end

local function append(command, pk, part)
    local start, stop = bounds(pk, command.stream)
    if command.count > 0 then
        add(chunks_key(pk, command.stream), {first = stop, count = command.count, writer = command.writer, value = command.value})
    end
    if part.length == 0 then
        part.first = stop
    end
    part.fence, part.attempt, part.length = command.fence, command.attempt, part.length + command.count
    set_bounds(pk, command.stream, start, stop + command.count)
    set_part(pk, command.stream, command.writer, part)
end

-- Rows of the writer without another's in between become one.
local function join(key, group)
    if #group > 1 then
        local values, count = {}, 0
        for i, chunk in ipairs(group) do
            S.zrem(key, chunk.first, chunk.member)
            values[i], count = chunk.value:sub(2, -2), count + chunk.count
        end
        local joined = '[' .. table.concat(values, ',') .. ']'
        add(key, {first = group[1].first, count = count, writer = group[1].writer, value = joined})
    end
end

local function fold(command, pk, part)
    local key = chunks_key(pk, command.stream)
    local group, size = {}, 0
    for _, chunk in ipairs(chunks_from(key, part.first)) do
        local own = chunk.writer == command.writer
        if not own or size + #chunk.value > S.FOLD_MAX then
            join(key, group)
            group, size = {}, 0
        end
        if own then
            group[#group + 1], size = chunk, size + #chunk.value
        end
    end
    join(key, group)
end

-- Rules 2 to 6. A refusal, or nil.
local function publish(command, pk)
    local part = part_of(pk, command.stream, command.writer)
    part = part or {fence = command.fence, attempt = command.attempt, length = 0, first = 0}
    local same_fence = part.fence == command.fence
    local own = same_fence and part.attempt == command.attempt
    if same_fence and part.attempt > command.attempt then
        return nil
    end
    local expected = (own or command.resumes) and part.length or 0
    if command.after ~= expected then
        local again = own and command.after + command.count <= part.length
        return not again and {'!', 'offset', S.text(part.length)} or nil
    end
    if part.length > expected then
        replace(command, pk)
        part.length = 0
    end
    append(command, pk, part)
    if command.last then
        fold(command, pk, part)
    end
end

function S.Publish(command)
    local record = command.record
    if not record then
        if not S.held_row(command.run, command.fence) then
            return S.FENCE
        end
        return publish(command, command.run)
    end
    if S.recorded_entry(record.run, record.seq, record.fence) then
        return false
    end
    local row = S.may_record(record.run, record.seq, record.fence)
    if not row or row.fence ~= command.fence or record.run ~= command.run then
        return S.FENCE
    end
    local refused = publish(command, command.run)
    if not refused then
        S.append_entry(row, record.seq, record.marks, record.key, record.text)
    end
    return refused
end

-- All streams of a run go.
function S.delete_streams(pk)
    for _, stream in ipairs(S.hkeys(P .. 'streams:' .. pk)) do
        S.delete_key(chunks_key(pk, stream))
    end
    S.delete_key(P .. 'streams:' .. pk)
    S.delete_key(P .. 'parts:' .. pk)
end

-- -- reads

local ENDED = {done = true, failed = true, cancelled = true, dead = true}

-- The run id of the server, which is another one after each start; empty if the server does not say.
function S.read_server()
    local told = redis.pcall('INFO', 'server')
    return type(told) == 'string' and told:match('run_id:(%w+)') or ''
end

-- Its bounds, and rows: the position of the first value, and the JSON array.
local function stream_from(pk, stream, after, limit)
    if not S.hget(P .. 'streams:' .. pk, stream) then
        return false
    end
    local key, start, stop = chunks_key(pk, stream), bounds(pk, stream)
    local members = call('ZREVRANGEBYSCORE', key, after, '-inf', 'LIMIT', 0, 1)
    if members[1] then
        local chunk = parsed(members[1])
        if chunk.first + chunk.count <= tonumber(after) then
            members = {}
        end
    end
    local left = tonumber(limit) - #members
    if left > 0 then
        for _, member in ipairs(call('ZRANGEBYSCORE', key, '(' .. after, '+inf', 'LIMIT', 0, S.text(left))) do
            members[#members + 1] = member
        end
    end
    local rows = {}
    for _, member in ipairs(members) do
        local chunk = parsed(member)
        rows[#rows + 1], rows[#rows + 2] = S.text(chunk.first), chunk.value
    end
    return {S.text(start), S.text(stop), rows}
end

-- The stream and the server.
function S.read_stream(pk, stream, after, limit)
    local found = stream_from(pk, stream, after, limit)
    if found then
        found[4] = S.read_server()
    end
    return found
end

-- The server, and each stream or false. The arguments of each follow those of the one before.
function S.read_many_streams(...)
    local asked, found = {...}, {}
    for i = 1, #asked, 4 do
        found[#found + 1] = stream_from(unpack(asked, i, i + 3))
    end
    return {S.read_server(), found}
end

-- Those of these runs that exist and have not ended.
function S.read_unended(...)
    local found = {}
    for _, pk in ipairs({...}) do
        local status = call('HGET', P .. 'run:' .. pk, 'status')
        if status and not ENDED[status] then
            found[#found + 1] = pk
        end
    end
    return found
end

function S.read_streams(pk)
    local answer = {}
    for _, stream in ipairs(S.hkeys(P .. 'streams:' .. pk)) do
        local start, stop = bounds(pk, stream)
        answer[#answer + 1] = {stream, S.text(start), S.text(stop)}
    end
    return answer
end

function S.read_parts(pk)
    local answer = {}
    for _, pair in ipairs(S.hkeys(P .. 'parts:' .. pk)) do
        local length, rest = pair:match('^(%d+):(.*)$')
        local stream, writer = rest:sub(1, tonumber(length)), rest:sub(tonumber(length) + 2)
        answer[#answer + 1] = {stream, writer, S.text(part_of(pk, stream, writer).length)}
    end
    return answer
end

function S.read_part(pk, stream, writer)
    local part = part_of(pk, stream, writer)
    if not part then
        return false
    end
    local values = {}
    for _, chunk in ipairs(chunks_from(chunks_key(pk, stream), part.first)) do
        if chunk.writer == writer then
            values[#values + 1] = chunk.value
        end
    end
    return {S.text(part.length), values}
end
