-- Taking back what a call has written.

-- Whether anything was written; how many inverses failed.
function S.rollback()
    local undo, failed = S.inverses, 0
    local function try(...)
        local result = redis.pcall(...)
        if type(result) == 'table' and result.err then
            failed = failed + 1
        end
    end
    for i = #undo - 2, 1, -3 do
        undo[i](try, undo[i + 1], undo[i + 2])
    end
    return #undo > 0, failed
end
