-- Sessions: a hash (version, times, owner, size, tokens; `f:` + name for a value, `l:` + name for a list), a list for each list, and
-- the names in order. No key has a TTL: a policy that evicts such keys would take one part of a session and leave the other.
-- One that was forgotten leaves a hash with its tokens, version 0 and an expiry: it is listed nowhere but among what expires.
-- A change is checked first and then written, so that several can be checked before the first of them is written.

local VALUE = -1  -- instead of the number of items

local function key(command)
    return P .. 'session:' .. S.pair(command.space, command.session)
end

local function names(command)
    return P .. 'names:' .. S.pair(command.space, command.session)
end

local function items(command, field)
    return P .. 'items:' .. S.pair(command.space, S.pair(command.session, field))
end

-- Delete the items of all lists, and the names. Return the names in the hash.
local function drop_parts(command)
    local all = S.hkeys(key(command))
    for _, name in ipairs(all) do
        if name:sub(1, 2) == 'l:' then
            S.delete_key(items(command, name:sub(3)))
        end
    end
    S.delete_key(names(command))
    return all
end

-- Delete all fields and lists.
local function empty(command)
    for _, name in ipairs(drop_parts(command)) do
        local kind = name:sub(1, 2)
        if kind == 'l:' or kind == 'f:' then
            S.hset(key(command), name, nil)
        end
    end
end

local function drop(command)
    local updated, expires = S.hget(key(command), 'updated'), S.hget(key(command), 'expires')
    drop_parts(command)
    if updated then
        S.zrem(P .. 'sessions:' .. command.space, tonumber(updated), command.session)
        S.zrem(P .. 'session_ids:' .. command.space, 0, command.session)
    end
    if expires then
        S.zrem(P .. 'expiring', tonumber(expires), S.pair(command.space, command.session))
    end
    S.delete_key(key(command))
end

-- Whether a hash with this version and expiry is a session that can be seen.
function S.is_session(version, expires)
    return version and version ~= '0' and not (expires and tonumber(expires) <= S.now) or false
end

-- What a change finds. The tokens of the last changes outlive the session.
local function find(command)
    local hash = key(command)
    local version, expires, tokens = S.hget(hash, 'version'), S.hget(hash, 'expires'), S.hget(hash, 'tokens')
    local it = {version = 0, size = 0, there = version, tokens = tokens and cjson.decode(tokens) or {}}
    if S.is_session(version, expires) then
        it.version, it.expires = tonumber(version), tonumber(expires)
        it.updated, it.owner = tonumber(S.hget(hash, 'updated')), tonumber(S.hget(hash, 'owner'))
        it.size = tonumber(S.hget(hash, 'size'))
    end
    return it
end

-- What the change with this token returned: a version, or the JSON of more.
local function known(it, token)
    for _, pair in ipairs(it.tokens) do
        if pair[1] == token then
            return pair[2]
        end
    end
end

local function remember(command, it, answer)
    local tokens = it.tokens
    tokens[#tokens + 1] = {command.token, answer}
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
local function bury(command, it)
    if it.there then
        drop(command)
    end
    S.hset(key(command), 'version', '0')
    remember(command, it, 0)
    expire(command, nil, S.now)
end

-- Whether it makes a session where there is none.
local function may_create(command)
    for _, pair in ipairs(command.fields) do
        if pair[2] then
            return true
        end
    end
    local deletes = #command.fields > 0 or #command.pops > 0 or command.clear
    return #command.appends > 0 or command.take or not deletes
end

local function does_more(command)
    return #command.appends > 0 or #command.pops > 0 or #command.replaces > 0 or command.clear or command.take
end

-- What there is of a field: VALUE, the number of items, or nil.
local function state(command, field)
    if S.hget(key(command), 'l:' .. field) then
        return S.list_length(items(command, field))
    end
    return S.hget(key(command), 'f:' .. field) and VALUE or nil
end

-- What the fields that a change is about are before it.
local function touched(command, it)
    local before = {}
    if it.version > 0 and not command.clear then
        for _, part in ipairs({'fields', 'appends', 'pops', 'replaces'}) do
            for _, one in ipairs(command[part]) do
                before[one[1]] = before[one[1]] or state(command, one[1])
            end
        end
    end
    return before
end

local function count_of(number)
    return number and number ~= VALUE and number or 0
end

-- What the fields will be, what is popped, and which items are replaced; or which list has no such item.
local function foresee(command, plan)
    local after, missing, length = {}, nil, nil
    for field, number in pairs(plan.before) do
        after[field] = number
    end
    for _, pair in ipairs(plan.sets) do
        after[pair[1]] = pair[2] and VALUE or nil
    end
    for _, pop in ipairs(command.pops) do
        local field, count = pop[1], count_of(after[pop[1]])
        local gone = math.max(0, math.min(count, pop[2]))
        if gone > 0 then
            plan.popped[field] = S.last_items(items(command, field), gone)
            plan.pops = true
            after[field] = gone < count and count - gone or nil
        end
    end
    for _, replace in ipairs(command.replaces) do
        local field, at = replace[1], replace[2]
        local count = count_of(after[field])
        if at >= count or at < -count then
            if not missing or field < missing then
                missing, length = field, count
            end
        else
            plan.replaced[#plan.replaced + 1] = {field, at < 0 and count + at or at, replace[3]}
        end
    end
    for _, more in ipairs(command.appends) do
        local count = count_of(after[more[1]]) + #more[2]
        after[more[1]] = more[3] and math.min(count, more[3]) or count
    end
    plan.after = after
    return missing and {'!', 'index', S.text(length) .. '/' .. missing}
end

local function size_after(command, it, plan)
    local size = command.clear and 0 or it.size
    for _ in pairs(plan.before) do
        size = size - 1
    end
    for _ in pairs(plan.after) do
        size = size + 1
    end
    return size
end

local function too_much(what, limit, needed, field)
    return {'!', 'limit', what .. '/' .. S.text(limit) .. '/' .. S.text(needed) .. '/' .. (field or '')}
end

local function characters(text)
    local _, continuing = text:gsub('[\128-\191]', '')
    return #text - continuing
end

local function over_limit(command, it, plan)
    local limits = command.limits
    if plan.size > math.max(limits.fields, it.size) then
        return too_much('fields', limits.fields, plan.size)
    end
    local worst
    for _, more in ipairs(command.appends) do
        local field = more[1]
        if plan.after[field] > math.max(limits.items, count_of(plan.before[field])) and (not worst or field < worst) then
            worst = field
        end
    end
    if worst then
        return too_much('items', limits.items, plan.after[worst], worst)
    end
    local popped = 0
    for _, values in pairs(plan.popped) do
        for _, value in ipairs(values) do
            popped = popped + characters(value)
        end
    end
    return popped > limits.popped and too_much('popped', limits.popped, popped) or nil
end

-- The fields to set: not those that are only set where they are absent, and are not.
local function to_set(command, before)
    local only, sets = {}, {}
    for _, field in ipairs(command.absent) do
        only[field] = true
    end
    for _, pair in ipairs(command.fields) do
        if not (before[pair[1]] and only[pair[1]]) then
            sets[#sets + 1] = pair
        end
    end
    return sets
end

-- Why it may not happen; or nil and what it does. One that has nothing to set is refused only if it is made alone.
local function check(command, it, alone)
    if command.owner and command.owner ~= it.owner then
        return {'!', 'owner', it.owner and S.text(it.owner) or ''}
    end
    if command.version and command.version ~= it.version then
        return {'!', 'version', S.text(it.version)}
    end
    local plan = {before = touched(command, it), popped = {}, replaced = {}}
    plan.sets = to_set(command, plan.before)
    if alone and #command.fields > 0 and #plan.sets == 0 and not does_more(command) then
        return {'!', 'present', S.text(it.version)}
    end
    local missing = foresee(command, plan)
    if missing then
        return missing
    end
    plan.size = size_after(command, it, plan)
    return command.limits and over_limit(command, it, plan) or nil, plan
end

local function write_row(command, it)
    local hash, updated = key(command), it.updated
    if updated ~= S.now then
        if updated then
            S.zrem(P .. 'sessions:' .. command.space, updated, command.session)
        end
        S.zadd(P .. 'sessions:' .. command.space, S.now, command.session)
        S.hset(hash, 'updated', S.text(S.now))
    end
    S.hset(hash, 'version', S.text(it.version + 1))
    local expires = command.ttl and S.now + command.ttl
    if command.extends and it.version > 0 then  -- the later one wins, and never is later than anything
        expires = it.expires and expires and math.max(it.expires, expires)
    end
    expire(command, it.expires, expires)
end

-- A field becomes a value, a list, or nothing.
local function become(command, field, before, after)
    local hash = key(command)
    local was = before and (before == VALUE and 'f:' or 'l:')
    local is = after and (after == VALUE and 'f:' or 'l:')
    if was ~= is then
        if was then
            S.hset(hash, was .. field, nil)
            S.zrem(names(command), 0, was .. field)
        end
        if is then
            S.zadd(names(command), 0, is .. field)
        end
    end
    if is == 'l:' and was ~= is then
        S.hset(hash, 'l:' .. field, '1')
    end
end

local function write_fields(command, plan)
    for _, pair in ipairs(plan.sets) do
        if count_of(plan.before[pair[1]]) > 0 then
            S.delete_key(items(command, pair[1]))
        end
    end
    for field, values in pairs(plan.popped) do
        S.pop_items(items(command, field), #values)
    end
    for _, one in ipairs(plan.replaced) do
        S.replace_item(items(command, one[1]), one[2], one[3])
    end
    for _, more in ipairs(command.appends) do
        local list = items(command, more[1])
        for _, value in ipairs(more[2]) do
            S.append_item(list, value)
        end
        if more[3] then
            S.truncate(list, more[3])
        end
    end
    for field, before in pairs(plan.before) do
        become(command, field, before, plan.after[field])
    end
    for field, after in pairs(plan.after) do
        if not plan.before[field] then
            become(command, field, nil, after)
        end
    end
    for _, pair in ipairs(plan.sets) do
        if plan.after[pair[1]] == VALUE then
            S.hset(key(command), 'f:' .. pair[1], pair[2])
        end
    end
end

-- The answer: a version, or the JSON of more.
local function write(command, it, plan)
    if it.version == 0 and not may_create(command) then
        bury(command, it)
        return 0
    end
    if it.version == 0 then
        if it.there then  -- it has expired
            drop(command)
        end
        S.zadd(P .. 'session_ids:' .. command.space, 0, command.session)
    elseif command.clear then
        empty(command)
    end
    local answer, more = it.version + 1, ''
    if command.take then
        local owner = S.next_fence()
        S.hset(key(command), 'owner', S.text(owner))
        more = ', "owner": ' .. S.text(owner)
    end
    if plan.pops then
        more = more .. ', "popped": ' .. cjson.encode(plan.popped)
    end
    if more ~= '' then
        answer = '{"version": ' .. S.text(answer) .. more .. '}'
    end
    write_row(command, it)
    S.hset(key(command), 'size', S.text(plan.size))
    remember(command, it, answer)
    write_fields(command, plan)
    return answer
end

-- The JSON of an answer, or a refusal.
local function as_json(answer)
    return type(answer) == 'number' and '{"version": ' .. S.text(answer) .. '}' or answer
end

local function change(command)
    local it = find(command)
    local made = known(it, command.token)
    if made then
        return as_json(made)
    end
    local refusal, plan = check(command, it, true)
    return refusal or as_json(write(command, it, plan))
end

local function change_all(command)
    local found, plans, answers, is_repeat = {}, {}, {}, false
    for i, one in ipairs(command.changes) do
        found[i] = find(one)
        answers[i] = known(found[i], one.token)
        is_repeat = is_repeat or answers[i]
    end
    for i, one in ipairs(command.changes) do
        if is_repeat then
            answers[i] = answers[i] or found[i].version
        else
            local refusal, plan = check(one, found[i], false)
            if refusal then
                return {'!', refusal[2], S.text(i - 1) .. '/' .. refusal[3]}
            end
            plans[i] = plan
        end
    end
    for i, one in ipairs(command.changes) do
        answers[i] = as_json(is_repeat and answers[i] or write(one, found[i], plans[i]))
    end
    return '{"changes": [' .. table.concat(answers, ', ') .. ']}'
end

-- Of a record: what its entry says, if it is a repeat; or a refusal; or nil and the row, if it may be written.
local function said(record)
    local text = S.recorded_entry(record.run, record.seq, record.fence)
    if text then
        return cjson.decode(text:match(' (.*)$'))[5]
    end
    local row = S.may_record(record.run, record.seq, record.fence)
    return not row and S.FENCE or nil, row
end

local function note(row, record, value)
    S.append_entry(row, record.seq, record.marks, record.key, record.before .. cjson.encode(value) .. record.after)
end

-- The answer is JSON, which Python reads; or it is a refusal.
local function recorded(command, act)
    if not command.record then
        return act(command)
    end
    local text, row = said(command.record)
    if text then
        return text
    end
    local outcome = act(command)
    text = type(outcome) == 'table' and '{"refused": ' .. cjson.encode({outcome[2], outcome[3]}) .. '}' or outcome
    note(row, command.record, text)
    return text
end

function S.UpdateSession(command)
    return recorded(command, change)
end

function S.UpdateSessions(command)
    return recorded(command, change_all)
end

function S.DeleteSession(command)
    if command.record then
        local text, row = said(command.record)
        if text then
            return text == S.FENCE and text
        end
        note(row, command.record, '{}')
    end
    local it = find(command)
    if not known(it, command.token) then
        bury(command, it)
    end
    return false
end

function S.ExtendSession(command)
    local it = find(command)
    if it.version > 0 and it.expires then  -- the later one wins, and never is later than anything
        expire(command, it.expires, command.ttl and math.max(it.expires, S.now + command.ttl))
    end
    return false
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
