-- One call: a header, then groups of verbs of one kind: its name, how many, and each one's arguments (Record: six texts; the others:
-- one JSON object). The answer: the time, whether others should look, and an outcome a verb; or what went wrong, when nothing was
-- written.

S.header = cjson.decode(ARGV[1])
S.server_time = call('TIME')
S.now = S.header.now or S.server_time[1] + S.server_time[2] / 1000000
S.gone, S.rings = {}, false
for _, worker in ipairs(S.header.gone or {}) do
    S.gone[worker] = true
end

local function records(at, count, outcomes)
    for i = at, at + 6 * (count - 1), 6 do
        outcomes[#outcomes + 1] = S.record(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
    end
    return at + 6 * count
end

local function main()
    local outcomes, at = {}, 2
    while at <= #ARGV do
        local kind, count = ARGV[at], tonumber(ARGV[at + 1])
        at = at + 2
        if kind == 'Record' then
            at = records(at, count, outcomes)
        else
            for i = at, at + count - 1 do
                outcomes[#outcomes + 1] = S[kind](cjson.decode(ARGV[i])) or false
            end
            at = at + count
        end
    end
    local write = S.flush or S.write_all_pending  -- the script that only records has no view
    write()
    return outcomes
end

-- One number instead, where there is nothing to say of any.
local function in_short(outcomes)
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
    local wrote, failed = S.take_back()
    local text = type(outcomes) == 'table' and outcomes.err or tostring(outcomes)
    return {'fault', text, wrote and '1' or '0', tostring(failed)}
end
S.at_hand('finish')
if S.rings or S.header.loud then
    redis.pcall('PUBLISH', P .. 'bell:' .. S.header.db, S.header.origin)
end
return {'done', S.text(S.now), S.rings and '1' or '0', in_short(outcomes)}
