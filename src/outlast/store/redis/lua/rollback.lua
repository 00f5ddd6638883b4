-- Revert what a failed call has written. Called by commit.lua.

-- Call the registered functions in reverse order. Return whether anything had been written, and
-- how many commands failed.
function S.rollback()
    local inverses, failed = S.inverses, 0
    local function try(...)
        local result = redis.pcall(...)
        if type(result) == 'table' and result.err then
            failed = failed + 1
        end
    end
    for i = #inverses - 2, 1, -3 do
        inverses[i](try, inverses[i + 1], inverses[i + 2])
    end
    return #inverses > 0, failed
end
