-- The main part of the commit script and of the record script. `RedisStore` calls it once per
-- batch.
--
-- Arguments: a JSON header, then groups of commands of one kind. A group has the name of the kind,
-- the number of commands, and their arguments: six texts per Record, two per Ack, and for all other
-- kinds one JSON list with an object per command.
--
-- Answer: {'done', time, whether other processes must be notified, outcomes}; {'void'} if this call
-- was voided; or {'fault', error, whether anything was written, failed reverts}. After 'void' and
-- 'fault' nothing is stored, unless a revert failed.

S.header = cjson.decode(ARGV[1])
S.server_time = call('TIME')
S.now = S.header.now or S.server_time[1] + S.server_time[2] / 1000000
S.missing_workers, S.must_notify = {}, false
for _, worker in ipairs(S.header.gone or {}) do
    S.missing_workers[worker] = true
end

-- The functions below apply one group. They return the position of the next argument.

local function apply_records(at, count, outcomes)
    local record = S.record
    for i = at, at + 6 * (count - 1), 6 do
        outcomes[#outcomes + 1] = record(
            ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
        )
    end
    return at + 6 * count
end

local function apply_acks(at, count, outcomes)
    local ack = S.Ack
    for i = at, at + 2 * (count - 1), 2 do
        outcomes[#outcomes + 1] = ack(ARGV[i], ARGV[i + 1])
    end
    return at + 2 * count
end

local function apply_others(at, _, outcomes, kind)
    local act = S[kind]
    for _, command in ipairs(cjson.decode(ARGV[at])) do
        outcomes[#outcomes + 1] = act(command) or false
    end
    return at + 1
end

-- Apply all commands and write the changes. Return one outcome per command, false for None.
local function main()
    local outcomes, at = {}, 2
    while at <= #ARGV do
        local kind, count = ARGV[at], tonumber(ARGV[at + 1])
        local group = kind == 'Record' and apply_records or kind == 'Ack' and apply_acks
            or apply_others
        at = group(at + 2, count, outcomes, kind)
    end
    S.flush()
    return outcomes
end

-- Return only the number of outcomes if all of them are false.
local function shorten(outcomes)
    for i = 1, #outcomes do
        if outcomes[i] then
            return outcomes
        end
    end
    return #outcomes
end

if call('ZSCORE', P .. 'void', S.header.call) then
    return {'void'}
end
local done, outcomes = pcall(main)
if not done then
    local wrote, failed = S.rollback()
    local text = type(outcomes) == 'table' and outcomes.err or tostring(outcomes)
    return {'fault', text, wrote and '1' or '0', tostring(failed)}
end
S.call_if_defined('free_deleted_keys')
if S.must_notify or S.header.loud then
    redis.pcall('PUBLISH', P .. 'notify:' .. S.header.db, S.header.origin)
end
if S.header.streams then
    redis.pcall('PUBLISH', P .. 'published:' .. S.header.db, S.header.origin)
end
return {'done', S.text(S.now), S.must_notify and '1' or '0', shorten(outcomes)}
