-- Journals. An entry is a text: the fence it was written under, a space, and JSON that only Python reads.

S.FENCE = {'!', 'fence', ''}

local function journal(pk)
    return P .. 'journal:' .. pk
end

-- The text of an entry, whichever hash it is in.
local function entry(pk, seq)
    S.flush_run(pk)
    return S.hget(journal(pk), seq) or S.hget(P .. 'dones:' .. pk, seq)
end

-- Whether this fence has recorded this seq.
function S.recorded_entry(run, seq, fence)
    local text = entry(run, seq)
    return text and text:match('^%S+') == fence and text
end

-- The row if the entry may be written under this fence: it follows the last one.
function S.may_record(run, seq, fence)
    local row = S.row_part(run)
    local number = tonumber(fence)
    return row and number > 0 and row.fence == number and tonumber(seq) == row.last + 1 and row or nil
end

-- As in `S.record`, for a run that is in the view.
function S.append_entry(row, seq, marks, key, text)
    S.put(row, 'last', tonumber(seq))
    if row.got ~= row.fence and row.last > row.mark and marks:find('p', 1, true) then
        S.put(row, 'got', row.fence)
    end
    if not row.dealt and marks:find('i', 1, true) then
        S.put(row, 'dealt', '1')
    end
    if marks == 'pd' then
        S.hset_new(P .. 'dones:' .. row.pk, seq, text)
        S.hset(P .. 'done:' .. row.pk, key, seq)
    else
        S.hset_new(journal(row.pk), seq, text)
    end
end

function S.record_loaded(run, seq, fence, marks, key, text)
    local row = S.may_record(run, seq, fence)
    if row then
        S.append_entry(row, seq, marks, key, text)
        return false
    end
    return not S.recorded_entry(run, seq, fence) and S.FENCE
end

-- An entry by the store itself, in a command that has just made the fence void; what comes after it is progress. It is under the void
-- fence: the life that lost the run may still record this seq, and under its own fence the entry would pass for that record's repeat.
-- `value` is JSON.
function S.append_store_entry(row, kind, value, key)
    local seq = row.last + 1
    local said = {cjson.encode(kind), cjson.encode(key or ''), S.text(S.now), 'null', cjson.encode(value)}
    S.append_entry(row, S.text(seq), '', '', S.text(-math.abs(row.fence)) .. ' [' .. table.concat(said, ',') .. ']')
    S.put(row, 'mark', seq)
end

function S.append_unmarked_entry(row, kind, value)
    local mark = row.mark
    S.append_store_entry(row, kind, value)
    S.put(row, 'mark', mark)
end

function S.SaveProgress(command)
    local row = S.held_row(command.run, command.fence)
    if not row then
        return S.FENCE
    end
    local key = P .. 'progress:' .. row.pk
    local before = S.hget(key, command.key)
    local fence, attempt = (before or '0 0 '):match('^(%S+) (%S+) ')
    if command.fence > tonumber(fence) or command.attempt >= tonumber(attempt) then
        S.hset(key, command.key, S.text(command.fence) .. ' ' .. S.text(command.attempt) .. ' ' .. command.value)
        S.put(row, 'got', row.fence)
    end
    return false
end

-- Whether it has got anywhere since it was last taken away: then no row of deaths or interruptions goes on.
function S.has_progress(row)
    return row.fence > 0 and row.got == row.fence
end
