-- Append entries to the journals of loaded runs, and save the progress of steps.
-- record_fast_path.lua explains how entries are stored. It handles runs that are not loaded.

S.FENCE = {'!', 'fence', ''}  -- the refusal of a fenced command

local function journal(pk)
    return P .. 'journal:' .. pk
end

-- Return the text of an entry; nil if there is none.
local function entry(pk, seq)
    S.flush_run(pk)
    return S.hget(journal(pk), seq) or S.hget(P .. 'dones:' .. pk, seq)
end

-- Return the text of the entry if this fence has already recorded this seq.
function S.recorded_entry(run, seq, fence)
    local text = entry(run, seq)
    return text and text:match('^%S+') == fence and text
end

-- Return the row if this fence may record this seq, that is, if it holds the run and the seq
-- follows the last entry.
function S.may_record(run, seq, fence)
    local row = S.row_part(run)
    local number = tonumber(fence)
    local is_held = row and number > 0 and row.fence == number
    return is_held and tonumber(seq) == row.last + 1 and row or nil
end

-- Append an entry to the journal of a loaded run. `S.record` explains `marks`.
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

-- Do the same as `S.record`, for a loaded run.
function S.record_loaded(run, seq, fence, marks, key, text)
    local row = S.may_record(run, seq, fence)
    if row then
        S.append_entry(row, seq, marks, key, text)
        return false
    end
    return not S.recorded_entry(run, seq, fence) and S.FENCE
end

-- Append an entry of the store itself and set `mark` to it: entries after it are progress. The
-- calling command has just voided the fence. The entry has the void fence, because the execution
-- that lost the run may still record the same seq. Under its own fence the entry would look like a
-- repeat of that Record. `value` is JSON.
function S.append_store_entry(row, kind, value, key)
    local seq = row.last + 1
    local fields = {
        cjson.encode(kind), cjson.encode(key or ''), S.text(S.now), 'null', cjson.encode(value),
    }
    local text = S.text(-math.abs(row.fence)) .. ' [' .. table.concat(fields, ',') .. ']'
    S.append_entry(row, S.text(seq), '', '', text)
    S.put(row, 'mark', seq)
end

-- Do the same, but leave `mark` as it is.
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
        local head = S.text(command.fence) .. ' ' .. S.text(command.attempt) .. ' '
        S.hset(key, command.key, head .. command.value)
        S.put(row, 'got', row.fence)
    end
    return false
end

-- Return whether the execution that holds the run has made progress.
function S.has_progress(row)
    return row.fence > 0 and row.got == row.fence
end
