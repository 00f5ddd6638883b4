-- Reads of sessions. A row: id, version, updated, expires, owner, fields (name, value, ...), lists (name, count, ...).

local HEAD = {'version', 'updated', 'expires', 'owner'}

local function key(kind, space, id)
    return P .. kind .. S.pair(space, id)
end

local function items(space, id, field)
    return P .. 'items:' .. S.pair(space, S.pair(id, field))
end

-- Its row without fields; nil if it cannot be seen.
local function head(space, id)
    local it = call('HMGET', key('session:', space, id), unpack(HEAD))
    if S.is_session(it[1], it[3]) then
        return {id, it[1], it[2], it[3], it[4], {}, {}}
    end
end

-- Add fields to a row: `named` are names in order, each behind `f:` or `l:`. One that is not there is left out.
local function add(row, space, id, named, with_values)
    local hash, fields, lists = key('session:', space, id), row[6], row[7]
    for start = 1, #named, S.CHUNK do
        local some = {unpack(named, start, math.min(start + S.CHUNK - 1, #named))}
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

-- The first names of one kind, or all of them.
local function first(space, id, kind, count)
    local limit = count and {'LIMIT', 0, count} or {}
    return call('ZRANGEBYLEX', key('names:', space, id), '[' .. kind .. ':', '(' .. kind .. ';', unpack(limit))
end

-- `names` is a JSON list, or empty for all.
function S.read_session(space, id, names, with_values)
    local row = head(space, id)
    if not row then
        return false
    end
    local named = {}
    if names == '' then
        named = call('ZRANGE', key('names:', space, id), 0, -1)
    else
        for _, name in ipairs(cjson.decode(names)) do
            named[#named + 1], named[#named + 2] = 'f:' .. name, 'l:' .. name
        end
    end
    return add(row, space, id, named, with_values == '1')
end

function S.read_fields(text)
    local query = cjson.decode(text)
    local row = head(query.space, query.session)
    if not row then
        return false
    end
    local low = (query.above and '(f:' or '[f:') .. query.low
    local high = query.high and '(f:' .. query.high or '(f;'
    local name, from, to = 'ZRANGEBYLEX', low, high
    if query.reverse then
        name, from, to = 'ZREVRANGEBYLEX', high, low
    end
    local named = call(name, key('names:', query.space, query.session), from, to, 'LIMIT', 0, query.limit)
    return add(row, query.space, query.session, named, true)
end

-- A slice as in Python. `stop` is empty for the end.
function S.read_items(space, id, field, start, stop)
    if not head(space, id) or tonumber(stop) == 0 then
        return {}
    end
    return call('LRANGE', items(space, id, field), start, stop == '' and -1 or S.text(tonumber(stop) - 1))
end

local function listed(query, row)
    local names = first(query.space, row[1], 'f', query.names)
    for _, name in ipairs(first(query.space, row[1], 'l', query.names)) do
        names[#names + 1] = name
    end
    return add(row, query.space, row[1], names, query.values)
end

-- A page of a walk: from the so manyth at or below a time; those that fit, and how many were looked at.
function S.read_sessions(text)
    local query = cjson.decode(text)
    local below = query.before and S.text(query.before) or '+inf'
    local flat = call('ZREVRANGEBYSCORE', P .. 'sessions:' .. query.space, below, '-inf', 'WITHSCORES', 'LIMIT', query.skip, query.look)
    local rows = {}
    for i = 1, #flat, 2 do
        local id, same = flat[i], query.before and tonumber(flat[i + 1]) == query.before
        local row = not (same and id >= query.id) and head(query.space, id)
        if row then
            rows[#rows + 1] = listed(query, row)
        end
    end
    return {S.text(#flat / 2), rows}
end

local function ids(query)
    local low, high = (query.above and '(' or '[') .. query.low, query.high and '(' .. query.high or '+'
    return call('ZRANGEBYLEX', P .. 'session_ids:' .. query.space, low, high, 'LIMIT', 0, query.look)
end

-- A page in the order of ids: the last id that was looked at, or none at the end; and the rows, with or without fields.
function S.read_sessions_by_id(text)
    local query = cjson.decode(text)
    local found, rows = ids(query), {}
    for _, id in ipairs(found) do
        local row = head(query.space, id)
        if row and #rows < query.limit then
            rows[#rows + 1] = query.names and listed(query, row) or row
        end
    end
    return {#found == query.look and found[#found] or false, rows}
end
