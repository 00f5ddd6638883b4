-- Lists, and keys that go, whatever they are: the rest of the view.

local CHUNK = S.CHUNK

local lists = {}  -- key -> {{values} or a count, ...}
local drops = {}  -- keys, in order
local last = {}   -- commands for the end

function S.push(key, value)
    local ops = lists[key] or {}
    lists[key] = ops
    local newest = ops[#ops]
    if type(newest) == 'table' and #newest < CHUNK then
        newest[#newest + 1] = value
    else
        ops[#ops + 1] = {value}
    end
end

-- Only the newest so many items of a list stay.
function S.keep(key, count)
    local ops = lists[key] or {}
    lists[key] = ops
    ops[#ops + 1] = count
end

-- A key goes, whatever it is and whatever of it is in the view.
function S.drop(key)
    lists[key] = nil
    drops[#drops + 1] = key
    S.forget_hash(key)
end

function S.flush_drops()
    for _, key in ipairs(drops) do
        if call('EXISTS', key) == 1 then
            -- Renaming can be taken back, and frees nothing yet.
            local grave = P .. 'grave:' .. #last
            S.write({'RENAME', grave, key}, 'RENAME', key, grave)
            last[#last + 1] = {'UNLINK', grave}
        end
    end
    drops = {}
end

local function flush_list(key, ops)
    for _, op in ipairs(ops) do
        if type(op) == 'table' then
            S.write({'LTRIM', key, 0, -#op - 1}, 'RPUSH', key, unpack(op))
        else
            local too_many = call('LLEN', key) - op
            while too_many > 0 do
                local count = math.min(too_many, CHUNK)
                local old, back = call('LRANGE', key, 0, count - 1), {}
                for i = #old, 1, -1 do
                    back[#back + 1] = old[i]
                end
                S.write({'LPUSH', key, unpack(back)}, 'LTRIM', key, count, -1)
                too_many = too_many - count
            end
        end
    end
end

function S.flush_lists()
    for key, ops in pairs(lists) do
        flush_list(key, ops)
    end
    lists = {}
end

-- What cannot be taken back, after all the rest.
function S.finish()
    for _, command in ipairs(last) do
        redis.pcall(unpack(command))
    end
end
