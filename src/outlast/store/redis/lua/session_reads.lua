-- Read sessions. reads.lua calls the functions of `S` by name; sessions.lua explains the keys.
--
-- The answer for a session is a row: {id, version, updated, expires, owner, fields, lists}, with
-- fields as {name, value, ...} and lists as {name, number of items, ...}.

local HEAD_FIELDS = {'version', 'updated', 'expires', 'owner'}

local function key(kind, space, id)
    return P .. kind .. S.pair(space, id)
end

local function items(space, id, field)
    return P .. 'items:' .. S.pair(space, S.pair(id, field))
end

-- Return the row of a session without fields and lists; nil if it does not exist or has expired.
local function read_head(space, id)
    local head = call('HMGET', key('session:', space, id), unpack(HEAD_FIELDS))
    if S.is_session(head[1], head[3]) then
        return {id, head[1], head[2], head[3], head[4], {}, {}}
    end
end

-- Add fields and lists to a row, in the order of `names`, each of which begins with `f:` or `l:`.
-- Leave out those that do not exist. Without `with_values`, all values are empty.
local function add_parts(row, space, id, names, with_values)
    local hash, fields, lists = key('session:', space, id), row[6], row[7]
    for start = 1, #names, S.CHUNK do
        local some = {unpack(names, start, math.min(start + S.CHUNK - 1, #names))}
        local values = with_values and call('HMGET', hash, unpack(some))
        for i, name in ipairs(some) do
            local field = name:sub(3)
            if name:sub(1, 2) == 'l:' then
                local count = call('LLEN', items(space, id, field))
                if count > 0 then
                    lists[#lists + 1], lists[#lists + 2] = field, S.text(count)
                end
            elseif values and values[i] or not values and call('HEXISTS', hash, name) == 1 then
                fields[#fields + 1], fields[#fields + 2] = field, values and values[i] or ''
            end
        end
    end
    return row
end

-- Return the first `count` names of a kind, `f` or `l`, or all of them.
local function first_names(space, id, kind, count)
    local limit = count and {'LIMIT', 0, count} or {}
    local low, high = '[' .. kind .. ':', '(' .. kind .. ';'
    return call('ZRANGEBYLEX', key('names:', space, id), low, high, unpack(limit))
end

-- Return a session with the fields and lists in `wanted`, a JSON list, or with all if it is empty.
function S.read_session(space, id, wanted, with_values)
    local row = read_head(space, id)
    if not row then
        return false
    end
    local names = {}
    if wanted == '' then
        names = call('ZRANGE', key('names:', space, id), 0, -1)
    else
        for _, name in ipairs(cjson.decode(wanted)) do
            names[#names + 1], names[#names + 2] = 'f:' .. name, 'l:' .. name
        end
    end
    return add_parts(row, space, id, names, with_values == '1')
end

-- Return a session with the fields in a range of names.
function S.read_fields(text)
    local query = cjson.decode(text)
    local row = read_head(query.space, query.session)
    if not row then
        return false
    end
    local low = (query.above and '(f:' or '[f:') .. query.low
    local high = query.high and '(f:' .. query.high or '(f;'
    local name, from, to = 'ZRANGEBYLEX', low, high
    if query.reverse then
        name, from, to = 'ZREVRANGEBYLEX', high, low
    end
    local key_of_names = key('names:', query.space, query.session)
    local names = call(name, key_of_names, from, to, 'LIMIT', 0, query.limit)
    return add_parts(row, query.space, query.session, names, true)
end

-- Return a slice of a list, as in Python. An empty `stop` means the end.
function S.read_items(space, id, field, start, stop)
    if not read_head(space, id) or tonumber(stop) == 0 then
        return {}
    end
    local last = stop == '' and -1 or S.text(tonumber(stop) - 1)
    return call('LRANGE', items(space, id, field), start, last)
end

-- Add the fields and lists that a listing asks for to a row.
local function add_listed_parts(query, row)
    local names = first_names(query.space, row[1], 'f', query.names)
    for _, name in ipairs(first_names(query.space, row[1], 'l', query.names)) do
        names[#names + 1] = name
    end
    return add_parts(row, query.space, row[1], names, query.values)
end

-- Return a page of sessions, last updated first: how many were checked, and the rows that match.
-- The page skips the first `skip` sessions that were updated at or before a time.
function S.read_sessions(text)
    local query = cjson.decode(text)
    local below = query.before and S.text(query.before) or '+inf'
    local flat = call(
        'ZREVRANGEBYSCORE', P .. 'sessions:' .. query.space, below, '-inf', 'WITHSCORES',
        'LIMIT', query.skip, query.look
    )
    local rows = {}
    for i = 1, #flat, 2 do
        local id, same = flat[i], query.before and tonumber(flat[i + 1]) == query.before
        local row = not (same and id >= query.id) and read_head(query.space, id)
        if row then
            rows[#rows + 1] = add_listed_parts(query, row)
        end
    end
    return {S.text(#flat / 2), rows}
end

local function ids_in_range(query)
    local low = (query.above and '(' or '[') .. query.low
    local high = query.high and '(' .. query.high or '+'
    local key_of_ids = P .. 'session_ids:' .. query.space
    return call('ZRANGEBYLEX', key_of_ids, low, high, 'LIMIT', 0, query.look)
end

-- Return a page of sessions by id: the last id that was checked, or false at the end, and the rows,
-- with fields and lists if the query asks for them.
function S.read_sessions_by_id(text)
    local query = cjson.decode(text)
    local found, rows = ids_in_range(query), {}
    for _, id in ipairs(found) do
        local row = read_head(query.space, id)
        if row and #rows < query.limit then
            rows[#rows + 1] = query.names and add_listed_parts(query, row) or row
        end
    end
    return {#found == query.look and found[#found] or false, rows}
end
