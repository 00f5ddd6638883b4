-- Sessions: a hash (version, times, tokens; `f:` + name for a value, `l:` + name for a list), and a list for each list.
-- No key has a TTL: a policy that evicts such keys would take one part of a session and leave the other.
-- One that was forgotten leaves a hash with its tokens, version 0 and an expiry: it is listed nowhere but among what expires.

local function key(command)
    return P .. 'session:' .. S.pair(command.space, command.session)
end

local function items(command, field)
    return P .. 'items:' .. S.pair(command.space, S.pair(command.session, field))
end

local function drop(command)
    local it = S.hall(key(command))
    for name in pairs(it) do
        if name:sub(1, 2) == 'l:' then
            S.drop(items(command, name:sub(3)))
        end
    end
    if it.updated then
        S.zrem(P .. 'sessions:' .. command.space, tonumber(it.updated), command.session)
    end
    if it.expires then
        S.zrem(P .. 'expiring', tonumber(it.expires), S.pair(command.space, command.session))
    end
    S.drop(key(command))
end

-- What there is of it and has not expired; and the tokens of its last changes, which outlive it.
local function current(command)
    local it = S.hall(key(command))
    local tokens = it.tokens and cjson.decode(it.tokens) or {}
    return S.is_session(it) and it or nil, tokens
end

local function known(tokens, token)
    for _, pair in ipairs(tokens) do
        if pair[1] == token then
            return pair[2]
        end
    end
end

local function remember(command, tokens, version)
    tokens[#tokens + 1] = {command.token, version}
    while #tokens > S.TOKENS_MAX do
        table.remove(tokens, 1)
    end
    S.hset(key(command), 'tokens', cjson.encode(tokens))
end

local function expire(command, was, expires)
    local member = S.pair(command.space, command.session)
    if was ~= expires then
        if was then
            S.zrem(P .. 'expiring', was, member)
        end
        if expires then
            S.zadd(P .. 'expiring', expires, member)
        end
        S.hset(key(command), 'expires', expires and S.text(expires))
    end
end

-- Nothing is left but the tokens, until these are pruned.
local function bury(command, tokens)
    drop(command)
    S.hset(key(command), 'version', '0')
    remember(command, tokens, 0)
    expire(command, nil, S.now)
end

local function only_deletes(command)
    for _, pair in ipairs(command.fields) do
        if pair[2] then
            return false
        end
    end
    return #command.fields > 0 and #command.appends == 0
end

local function unlist(command, field)
    if S.hget(key(command), 'l:' .. field) then
        S.hset(key(command), 'l:' .. field, nil)
        S.drop(items(command, field))
    end
end

local function set_fields(command)
    for _, pair in ipairs(command.fields) do
        unlist(command, pair[1])
        S.hset(key(command), 'f:' .. pair[1], pair[2])
    end
end

local function append_items(command)
    for _, more in ipairs(command.appends) do
        local field = more.field
        S.hset(key(command), 'f:' .. field, nil)
        S.hset(key(command), 'l:' .. field, '1')
        for _, value in ipairs(more.values) do
            S.push(items(command, field), value)
        end
        if more.keep then
            S.keep(items(command, field), more.keep)
        end
    end
end

-- The new version, or a refusal.
local function change(command)
    local it, tokens = current(command)
    local version = it and tonumber(it.version) or 0
    local made = known(tokens, command.token)
    if made then
        return made
    end
    if command.version and command.version ~= version then
        return {'!', 'version', S.text(version)}
    end
    if not it and only_deletes(command) then
        bury(command, tokens)
        return 0
    end
    if not it then  -- it may be there and expired
        drop(command)
    end
    local updated = it and tonumber(it.updated)
    if updated ~= S.now then
        if updated then
            S.zrem(P .. 'sessions:' .. command.space, updated, command.session)
        end
        S.zadd(P .. 'sessions:' .. command.space, S.now, command.session)
    end
    S.hset(key(command), 'version', S.text(version + 1))
    S.hset(key(command), 'updated', S.text(S.now))
    remember(command, tokens, version + 1)
    local was, expires = it and tonumber(it.expires), command.ttl and S.now + command.ttl
    if command.extends and version > 0 then  -- the later one wins, and never is later than anything
        expires = was and expires and math.max(was, expires)
    end
    expire(command, was, expires)
    set_fields(command)
    append_items(command)
    return version + 1
end

-- Of a record: what its entry says, if it is a repeat; or a refusal; or nil and the row, if it may be written.
local function said(record)
    local text = S.recorded(record.run, record.seq, record.fence)
    if text then
        return cjson.decode(cjson.decode(text:match(' (.*)$'))[5])
    end
    local row = S.may_record(record.run, record.seq, record.fence)
    return not row and S.FENCE or nil, row
end

local function write(row, record, value)
    S.append(row, record.seq, record.marks, record.key, record.before .. cjson.encode(value) .. record.after)
end

function S.UpdateSession(command)
    if not command.record then
        local outcome = change(command)
        return type(outcome) == 'number' and S.text(outcome) or outcome
    end
    local entry, row = said(command.record)
    if entry and entry[1] == '!' then
        return entry
    end
    if not entry then
        local outcome = change(command)
        local refused = type(outcome) == 'table'
        entry = refused and {conflict = tonumber(outcome[3])} or {version = outcome}
        local number = S.text(entry.version or entry.conflict)
        write(row, command.record, '{"' .. (refused and 'conflict' or 'version') .. '": ' .. number .. '}')
    end
    return entry.version and S.text(entry.version) or {'!', 'version', S.text(entry.conflict)}
end

function S.DeleteSession(command)
    if command.record then
        local entry, row = said(command.record)
        if entry then
            return entry[1] == '!' and entry
        end
        write(row, command.record, '{}')
    end
    local _, tokens = current(command)
    if not known(tokens, command.token) then
        bury(command, tokens)
    end
    return false
end

function S.ExtendSession(command)
    local it = current(command)
    if it and it.expires then  -- the later one wins, and never is later than anything
        local was = tonumber(it.expires)
        expire(command, was, command.ttl and math.max(was, S.now + command.ttl))
    end
    return false
end

-- Whether what is in its hash is a session that can be seen.
function S.is_session(it)
    return it.version and it.version ~= '0' and not (it.expires and tonumber(it.expires) <= S.now)
end

-- How many went; 0; whether there are more. What is listed with another expiry than its own, or without being there, is put right.
function S.prune_sessions(command)
    S.flush()
    local most = '(' .. S.text(math.min(command.before, S.now))
    if command.before > S.now then
        most = S.text(S.now)
    end
    local count, look = 0, math.min(command.limit, command.look)
    local flat = call('ZRANGEBYSCORE', P .. 'expiring', '-inf', most, 'WITHSCORES', 'LIMIT', 0, look)
    for i = 1, #flat, 2 do
        local member, score = flat[i], tonumber(flat[i + 1])
        local size, rest = member:match('^(%d+):(.*)$')
        local it = {space = rest:sub(1, tonumber(size)), session = rest:sub(tonumber(size) + 2)}
        local expires = tonumber(S.hget(key(it), 'expires'))
        if expires == score then
            drop(it)
            count = count + 1
        else
            S.zrem(P .. 'expiring', score, member)
            if expires then
                S.zadd(P .. 'expiring', expires, member)
            end
        end
    end
    return count, 0, #flat == 2 * look
end
