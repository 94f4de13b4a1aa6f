-- late: a first byte left after its permit had closed. It is counted once more, at the moment it really left, so
-- that the permits after it keep their distance. It only ever takes away: a call that is lost or repeated does no harm.
-- KEYS clock, then for each limit: its key and its log
-- ARGV tolerance_us, then for each limit: rule, ahead_us, edges, and then for each the window of the permit
-- reply: 1, or 0 if Redis does not know a limit
local tolerance = tonumber(ARGV[1])
local now = now_us()
local limits = enter_all(2, 2, KEYS[1], now, tolerance)
if not limits then
    return 0
end
for i, limit in ipairs(limits) do
    local rule, granted = limit.rule, tonumber(ARGV[1 + 3 * #limits + i])
    if rule.algorithm ~= "fixed_window" then
        spend_of(limit, now)
        save_all({limit}, now)
    else
        -- In its own window it has its number; it takes one of the next, if it may have fallen into that.
        local window = window_at(rule, now + rule.lateness)
        if window and window > granted and window >= limit.state.window then
            limit.state.used = window == limit.state.window and limit.state.used + 1 or 1
            limit.state.window = window
            save_all({limit}, now)
        end
    end
end
return 1
