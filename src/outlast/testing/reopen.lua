-- Make an ended run claimable as it stands, so that its journal can be replayed once more.
function S.Reopen(command)
    local row = S.row_of(command.id)
    S.keep_end(row)
    S.become(row, 'queued')
    S.put(row, 'undoing', command.undoing)
    S.put(row, 'ended', nil)
    S.put(row, 'due', 0)
    S.put(row, 'ready', 1)
    return false
end
