-- Sessions: a hash (version, times, tokens; `f:` + name for a value, `l:` + name for a list), and a list for each list.
-- No key has a TTL: a policy that evicts such keys would take one part of a session and leave the other.
-- One that was forgotten leaves a hash with its tokens, version 0 and an expiry: it is listed nowhere but among what expires.

local function key(verb)
    return P .. 'session:' .. S.pair(verb.space, verb.session)
end

local function items(verb, field)
    return P .. 'items:' .. S.pair(verb.space, S.pair(verb.session, field))
end

local function drop(verb)
    local it = S.hall(key(verb))
    for name in pairs(it) do
        if name:sub(1, 2) == 'l:' then
            S.drop(items(verb, name:sub(3)))
        end
    end
    if it.updated then
        S.zrem(P .. 'sessions:' .. verb.space, tonumber(it.updated), verb.session)
    end
    if it.expires then
        S.zrem(P .. 'expiring', tonumber(it.expires), S.pair(verb.space, verb.session))
    end
    S.drop(key(verb))
end

-- What there is of it and has not expired; and the tokens of its last changes, which outlive it.
local function current(verb)
    local it = S.hall(key(verb))
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

local function remember(verb, tokens, version)
    tokens[#tokens + 1] = {verb.token, version}
    while #tokens > S.TOKENS_MAX do
        table.remove(tokens, 1)
    end
    S.hset(key(verb), 'tokens', cjson.encode(tokens))
end

local function expire(verb, was, expires)
    local member = S.pair(verb.space, verb.session)
    if was ~= expires then
        if was then
            S.zrem(P .. 'expiring', was, member)
        end
        if expires then
            S.zadd(P .. 'expiring', expires, member)
        end
        S.hset(key(verb), 'expires', expires and S.text(expires))
    end
end

-- Nothing is left but the tokens, until these are pruned.
local function bury(verb, tokens)
    drop(verb)
    S.hset(key(verb), 'version', '0')
    remember(verb, tokens, 0)
    expire(verb, nil, S.now)
end

local function only_deletes(verb)
    for _, pair in ipairs(verb.fields) do
        if pair[2] then
            return false
        end
    end
    return #verb.fields > 0 and #verb.appends == 0
end

local function unlist(verb, field)
    if S.hget(key(verb), 'l:' .. field) then
        S.hset(key(verb), 'l:' .. field, nil)
        S.drop(items(verb, field))
    end
end

local function set_fields(verb)
    for _, pair in ipairs(verb.fields) do
        unlist(verb, pair[1])
        S.hset(key(verb), 'f:' .. pair[1], pair[2])
    end
end

local function append_items(verb)
    for _, more in ipairs(verb.appends) do
        local field = more.field
        S.hset(key(verb), 'f:' .. field, nil)
        S.hset(key(verb), 'l:' .. field, '1')
        for _, value in ipairs(more.values) do
            S.push(items(verb, field), value)
        end
        if more.keep then
            S.keep(items(verb, field), more.keep)
        end
    end
end

-- The new version, or a refusal.
local function change(verb)
    local it, tokens = current(verb)
    local version = it and tonumber(it.version) or 0
    local made = known(tokens, verb.token)
    if made then
        return made
    end
    if verb.version and verb.version ~= version then
        return {'!', 'version', S.text(version)}
    end
    if not it and only_deletes(verb) then
        bury(verb, tokens)
        return 0
    end
    if not it then  -- it may be there and expired
        drop(verb)
    end
    local updated = it and tonumber(it.updated)
    if updated ~= S.now then
        if updated then
            S.zrem(P .. 'sessions:' .. verb.space, updated, verb.session)
        end
        S.zadd(P .. 'sessions:' .. verb.space, S.now, verb.session)
    end
    S.hset(key(verb), 'version', S.text(version + 1))
    S.hset(key(verb), 'updated', S.text(S.now))
    remember(verb, tokens, version + 1)
    local was, expires = it and tonumber(it.expires), verb.ttl and S.now + verb.ttl
    if verb.extends and version > 0 then  -- the later one wins, and never is later than anything
        expires = was and expires and math.max(was, expires)
    end
    expire(verb, was, expires)
    set_fields(verb)
    append_items(verb)
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

function S.Keep(verb)
    if not verb.record then
        local outcome = change(verb)
        return type(outcome) == 'number' and S.text(outcome) or outcome
    end
    local entry, row = said(verb.record)
    if entry and entry[1] == '!' then
        return entry
    end
    if not entry then
        local outcome = change(verb)
        local refused = type(outcome) == 'table'
        entry = refused and {conflict = tonumber(outcome[3])} or {version = outcome}
        local number = S.text(entry.version or entry.conflict)
        write(row, verb.record, '{"' .. (refused and 'conflict' or 'version') .. '": ' .. number .. '}')
    end
    return entry.version and S.text(entry.version) or {'!', 'version', S.text(entry.conflict)}
end

function S.Forget(verb)
    if verb.record then
        local entry, row = said(verb.record)
        if entry then
            return entry[1] == '!' and entry
        end
        write(row, verb.record, '{}')
    end
    local _, tokens = current(verb)
    if not known(tokens, verb.token) then
        bury(verb, tokens)
    end
    return false
end

function S.Touch(verb)
    local it = current(verb)
    if it and it.expires then  -- the later one wins, and never is later than anything
        local was = tonumber(it.expires)
        expire(verb, was, verb.ttl and math.max(was, S.now + verb.ttl))
    end
    return false
end

-- Whether what is in its hash is a session that can be seen.
function S.is_session(it)
    return it.version and it.version ~= '0' and not (it.expires and tonumber(it.expires) <= S.now)
end

-- How many went; 0; whether there are more. What is listed with another expiry than its own, or without being there, is put right.
function S.prune_sessions(verb)
    S.flush()
    local most = '(' .. S.text(math.min(verb.before, S.now))
    if verb.before > S.now then
        most = S.text(S.now)
    end
    local count, look = 0, math.min(verb.limit, verb.look)
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
