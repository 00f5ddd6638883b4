-- The commands that change sessions: UpdateSession, UpdateSessions, DeleteSession, ExtendSession,
-- and the part of Prune that deletes sessions. session_reads.lua reads them.
--
-- Keys of a session:
--   session:<space, id>       a hash: version, updated, expires, owner, size (number of fields and
--                             lists), tokens, `f:<name>` for a value, `l:<name>` for a list
--   items:<space, id, name>   the items of a list
--   names:<space, id>         the names, with `f:` or `l:`, in order
-- Keys of a space: sessions:<space> has the ids by time of change, session_ids:<space> in their order.
-- `expiring` orders all sessions that expire. No key has a TTL: an eviction policy for such keys
-- could delete one part of a session and leave the others.
--
-- A deleted session leaves its hash with the tokens, version 0 and an expiry, so that a repeat of a
-- change is recognized until Prune deletes it. It is listed only in `expiring`.
--
-- A change is first checked, which gives a plan, and then written. So UpdateSessions can check all
-- its changes before it writes the first.

local VALUE = -1  -- stands for a plain value where a list has its number of items

local function key(command)
    return P .. 'session:' .. S.pair(command.space, command.session)
end

local function names(command)
    return P .. 'names:' .. S.pair(command.space, command.session)
end

local function items(command, field)
    return P .. 'items:' .. S.pair(command.space, S.pair(command.session, field))
end

-- Delete the items of all lists, and the names. Return the fields of the hash.
local function delete_parts(command)
    local all = S.hkeys(key(command))
    for _, name in ipairs(all) do
        if name:sub(1, 2) == 'l:' then
            S.delete_key(items(command, name:sub(3)))
        end
    end
    S.delete_key(names(command))
    return all
end

-- Delete all fields and lists of a session, but not the session.
local function clear(command)
    for _, name in ipairs(delete_parts(command)) do
        local kind = name:sub(1, 2)
        if kind == 'l:' or kind == 'f:' then
            S.hset(key(command), name, nil)
        end
    end
end

-- Delete a session with everything that belongs to it.
local function delete(command)
    local updated, expires = S.hget(key(command), 'updated'), S.hget(key(command), 'expires')
    delete_parts(command)
    if updated then
        S.zrem(P .. 'sessions:' .. command.space, tonumber(updated), command.session)
        S.zrem(P .. 'session_ids:' .. command.space, 0, command.session)
    end
    if expires then
        S.zrem(P .. 'expiring', tonumber(expires), S.pair(command.space, command.session))
    end
    S.delete_key(key(command))
end

-- Return whether a hash with this version and expiry is a session that is not deleted or expired.
function S.is_session(version, expires)
    return version and version ~= '0' and not (expires and tonumber(expires) <= S.now) or false
end

-- Return the state of a session before a change. If it is deleted, expired or new, the version is
-- 0. The tokens outlive the session. `is_stored`: there is a hash.
local function load(command)
    local hash = key(command)
    local version, expires = S.hget(hash, 'version'), S.hget(hash, 'expires')
    local tokens = S.hget(hash, 'tokens')
    local session = {
        version = 0, size = 0, is_stored = version, tokens = tokens and cjson.decode(tokens) or {},
    }
    if S.is_session(version, expires) then
        session.version, session.expires = tonumber(version), tonumber(expires)
        session.updated = tonumber(S.hget(hash, 'updated'))
        session.owner = tonumber(S.hget(hash, 'owner'))
        session.size = tonumber(S.hget(hash, 'size'))
    end
    return session
end

-- Return the answer to an earlier change with this token, a version or JSON; nil if there was none.
local function earlier_answer(session, token)
    for _, pair in ipairs(session.tokens) do
        if pair[1] == token then
            return pair[2]
        end
    end
end

-- Keep the answer to a change under its token, and only the newest TOKENS_MAX of them.
local function remember(command, session, answer)
    local tokens = session.tokens
    tokens[#tokens + 1] = {command.token, answer}
    while #tokens > S.TOKENS_MAX do
        table.remove(tokens, 1)
    end
    S.hset(key(command), 'tokens', cjson.encode(tokens))
end

local function set_expiry(command, was, expires)
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

-- Delete a session but keep its tokens until Prune deletes them.
local function delete_but_tokens(command, session)
    if session.is_stored then
        delete(command)
    end
    S.hset(key(command), 'version', '0')
    remember(command, session, 0)
    set_expiry(command, nil, S.now)
end

-- Return whether a change creates a session that does not exist.
local function may_create(command)
    for _, pair in ipairs(command.fields) do
        if pair[2] then
            return true
        end
    end
    local deletes = #command.fields > 0 or #command.pops > 0 or command.clear
    return #command.appends > 0 or command.take or not deletes
end

-- Return whether a change does anything besides setting fields.
local function does_more_than_set(command)
    return #command.appends > 0 or #command.pops > 0 or #command.replaces > 0 or command.clear
        or command.take
end

-- Return what a field is: VALUE, the number of items of a list, or nil if it does not exist.
local function field_state(command, field)
    if S.hget(key(command), 'l:' .. field) then
        return S.list_length(items(command, field))
    end
    return S.hget(key(command), 'f:' .. field) and VALUE or nil
end

-- Return the state of each field that a change names, before the change.
local function states_before(command, session)
    local before = {}
    if session.version > 0 and not command.clear then
        for _, part in ipairs({'fields', 'appends', 'pops', 'replaces'}) do
            for _, one in ipairs(command[part]) do
                before[one[1]] = before[one[1]] or field_state(command, one[1])
            end
        end
    end
    return before
end

-- Return the number of items of a field with this state, 0 if it is not a list.
local function item_count(state)
    return state and state ~= VALUE and state or 0
end

-- Add to the plan the state of each field after the change, the popped values, and the items to
-- replace. Return a refusal if a list has no item at an index.
local function plan_change(command, plan)
    local after, missing, length = {}, nil, nil
    for field, state in pairs(plan.before) do
        after[field] = state
    end
    for _, pair in ipairs(plan.sets) do
        after[pair[1]] = pair[2] and VALUE or nil
    end
    for _, pop in ipairs(command.pops) do
        local field, count = pop[1], item_count(after[pop[1]])
        local popped = math.max(0, math.min(count, pop[2]))
        if popped > 0 then
            plan.popped[field] = S.last_items(items(command, field), popped)
            plan.pops = true
            after[field] = popped < count and count - popped or nil
        end
    end
    for _, replace in ipairs(command.replaces) do
        local field, at = replace[1], replace[2]
        local count = item_count(after[field])
        if at >= count or at < -count then
            if not missing or field < missing then
                missing, length = field, count
            end
        else
            plan.replaced[#plan.replaced + 1] = {field, at < 0 and count + at or at, replace[3]}
        end
    end
    for _, append in ipairs(command.appends) do
        local field, values, keep = append[1], append[2], append[3]
        local count = item_count(after[field]) + #values
        after[field] = keep and math.min(count, keep) or count
    end
    plan.after = after
    return missing and {'!', 'index', S.text(length) .. '/' .. missing}
end

-- Return how many fields and lists the session has after the change.
local function size_after(command, session, plan)
    local size = command.clear and 0 or session.size
    for _ in pairs(plan.before) do
        size = size - 1
    end
    for _ in pairs(plan.after) do
        size = size + 1
    end
    return size
end

local function over_limit(what, limit, needed, field)
    local detail = what .. '/' .. S.text(limit) .. '/' .. S.text(needed) .. '/' .. (field or '')
    return {'!', 'limit', detail}
end

-- Return the number of characters of a UTF-8 text.
local function count_characters(text)
    local _, continuing = text:gsub('[\128-\191]', '')
    return #text - continuing
end

-- Return a refusal if the change exceeds a limit. What exceeded it before may stay as large.
local function check_limits(command, session, plan)
    local limits = command.limits
    if plan.size > math.max(limits.fields, session.size) then
        return over_limit('fields', limits.fields, plan.size)
    end
    local first  -- the first name of a list that is too long
    for _, append in ipairs(command.appends) do
        local field = append[1]
        local most = math.max(limits.items, item_count(plan.before[field]))
        if plan.after[field] > most and (not first or field < first) then
            first = field
        end
    end
    if first then
        return over_limit('items', limits.items, plan.after[first], first)
    end
    local popped = 0
    for _, values in pairs(plan.popped) do
        for _, value in ipairs(values) do
            popped = popped + count_characters(value)
        end
    end
    return popped > limits.popped and over_limit('popped', limits.popped, popped) or nil
end

-- Return the fields to set. Those in `absent` are set only if they do not exist.
local function fields_to_set(command, before)
    local if_absent, sets = {}, {}
    for _, field in ipairs(command.absent) do
        if_absent[field] = true
    end
    for _, pair in ipairs(command.fields) do
        if not (before[pair[1]] and if_absent[pair[1]]) then
            sets[#sets + 1] = pair
        end
    end
    return sets
end

-- Check a change. Return a refusal, or nil and the plan:
--   sets: the fields to set; popped: name -> values; replaced: {name, index, value}, ...
--   before, after: name -> state; size: the number of fields and lists after the change
-- A change with nothing left to set is refused if it is not part of an UpdateSessions (`alone`).
local function check(command, session, alone)
    if command.owner and command.owner ~= session.owner then
        return {'!', 'owner', session.owner and S.text(session.owner) or ''}
    end
    if command.version and command.version ~= session.version then
        return {'!', 'version', S.text(session.version)}
    end
    local plan = {before = states_before(command, session), popped = {}, replaced = {}}
    plan.sets = fields_to_set(command, plan.before)
    if alone and #command.fields > 0 and #plan.sets == 0 and not does_more_than_set(command) then
        return {'!', 'present', S.text(session.version)}
    end
    local missing = plan_change(command, plan)
    if missing then
        return missing
    end
    plan.size = size_after(command, session, plan)
    return command.limits and check_limits(command, session, plan) or nil, plan
end

-- Write the version, the time of change and the expiry.
local function write_head(command, session)
    local hash, updated = key(command), session.updated
    if updated ~= S.now then
        if updated then
            S.zrem(P .. 'sessions:' .. command.space, updated, command.session)
        end
        S.zadd(P .. 'sessions:' .. command.space, S.now, command.session)
        S.hset(hash, 'updated', S.text(S.now))
    end
    S.hset(hash, 'version', S.text(session.version + 1))
    local expires = command.ttl and S.now + command.ttl
    if command.extends and session.version > 0 then  -- the later expiry wins; nil is never
        expires = session.expires and expires and math.max(session.expires, expires)
    end
    set_expiry(command, session.expires, expires)
end

-- Update the names and the hash of a session when a field becomes a value, a list, or absent.
local function set_field_kind(command, field, before, after)
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
        if item_count(plan.before[pair[1]]) > 0 then
            S.delete_key(items(command, pair[1]))
        end
    end
    for field, values in pairs(plan.popped) do
        S.pop_items(items(command, field), #values)
    end
    for _, replace in ipairs(plan.replaced) do
        S.replace_item(items(command, replace[1]), replace[2], replace[3])
    end
    for _, append in ipairs(command.appends) do
        local list, keep = items(command, append[1]), append[3]
        for _, value in ipairs(append[2]) do
            S.append_item(list, value)
        end
        if keep then
            S.truncate(list, keep)
        end
    end
    for field, before in pairs(plan.before) do
        set_field_kind(command, field, before, plan.after[field])
    end
    for field, after in pairs(plan.after) do
        if not plan.before[field] then
            set_field_kind(command, field, nil, after)
        end
    end
    for _, pair in ipairs(plan.sets) do
        if plan.after[pair[1]] == VALUE then
            S.hset(key(command), 'f:' .. pair[1], pair[2])
        end
    end
end

-- Write a change that was checked. Return a version, or JSON if there is more to return.
local function write(command, session, plan)
    if session.version == 0 and not may_create(command) then
        delete_but_tokens(command, session)
        return 0
    end
    if session.version == 0 then
        if session.is_stored then  -- it has expired
            delete(command)
        end
        S.zadd(P .. 'session_ids:' .. command.space, 0, command.session)
    elseif command.clear then
        clear(command)
    end
    local answer, more = session.version + 1, ''
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
    write_head(command, session)
    S.hset(key(command), 'size', S.text(plan.size))
    remember(command, session, answer)
    write_fields(command, plan)
    return answer
end

-- Return an answer as JSON. A refusal stays as it is.
local function as_json(answer)
    return type(answer) == 'number' and '{"version": ' .. S.text(answer) .. '}' or answer
end

-- Apply one change. Return JSON, or a refusal.
local function change(command)
    local session = load(command)
    local answer = earlier_answer(session, command.token)
    if answer then
        return as_json(answer)
    end
    local refusal, plan = check(command, session, true)
    return refusal or as_json(write(command, session, plan))
end

-- Apply several changes, or none if one is refused. Return JSON, or a refusal.
local function change_all(command)
    local found, plans, answers, is_repeat = {}, {}, {}, false
    for i, one in ipairs(command.changes) do
        found[i] = load(one)
        answers[i] = earlier_answer(found[i], one.token)
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

-- Check the Record that a command carries. Return the value of its entry if it is a repeat, or a
-- refusal, or nil and the row if the entry may be written.
local function check_record(record)
    local text = S.recorded_entry(record.run, record.seq, record.fence)
    if text then
        return cjson.decode(text:match(' (.*)$'))[5]
    end
    local row = S.may_record(record.run, record.seq, record.fence)
    return not row and S.FENCE or nil, row
end

local function write_record(row, record, value)
    local text = record.before .. cjson.encode(value) .. record.after
    S.append_entry(row, record.seq, record.marks, record.key, text)
end

-- Apply a command with `act` and record its answer if the command carries a Record. Return JSON, or
-- a refusal. If the change is refused, the refusal is recorded and returned as JSON.
local function apply_and_record(command, act)
    if not command.record then
        return act(command)
    end
    local text, row = check_record(command.record)
    if text then
        return text
    end
    local outcome = act(command)
    text = outcome
    if type(outcome) == 'table' then
        text = '{"refused": ' .. cjson.encode({outcome[2], outcome[3]}) .. '}'
    end
    write_record(row, command.record, text)
    return text
end

function S.UpdateSession(command)
    return apply_and_record(command, change)
end

function S.UpdateSessions(command)
    return apply_and_record(command, change_all)
end

function S.DeleteSession(command)
    if command.record then
        local text, row = check_record(command.record)
        if text then
            return text == S.FENCE and text
        end
        write_record(row, command.record, '{}')
    end
    local session = load(command)
    if not earlier_answer(session, command.token) then
        delete_but_tokens(command, session)
    end
    return false
end

function S.ExtendSession(command)
    local session = load(command)
    if session.version > 0 and session.expires then  -- the later expiry wins; nil is never
        local expires = command.ttl and math.max(session.expires, S.now + command.ttl)
        set_expiry(command, session.expires, expires)
    end
    return false
end

-- Delete expired sessions. Return how many, 0, and whether there are more: see prune.lua. Correct
-- members of `expiring` whose session does not exist or has another expiry.
function S.prune_sessions(command)
    S.flush()
    local most = '(' .. S.text(math.min(command.before, S.now))
    if command.before > S.now then
        most = S.text(S.now)
    end
    local count, look = 0, math.min(command.limit, command.look)
    local flat = call(
        'ZRANGEBYSCORE', P .. 'expiring', '-inf', most, 'WITHSCORES', 'LIMIT', 0, look
    )
    for i = 1, #flat, 2 do
        local member, score = flat[i], tonumber(flat[i + 1])
        local size, rest = member:match('^(%d+):(.*)$')
        local ref = {space = rest:sub(1, tonumber(size)), session = rest:sub(tonumber(size) + 2)}
        local expires = tonumber(S.hget(key(ref), 'expires'))
        if expires == score then
            delete(ref)
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
