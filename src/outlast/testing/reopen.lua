-- Make an ended run claimable as it stands, so that its journal can be replayed once more.
function S.Reopen(command)
    local row = S.row_by_id(command.id)
    S.keep_end_of_execution(row)
    S.set_status(row, 'queued')
    S.put(row, 'undoing', command.undoing)
    S.put(row, 'ended', nil)
    S.put(row, 'due', 0)
    S.put(row, 'ready', 1)
    return false
end
