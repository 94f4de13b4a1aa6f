-- late: counts a request once more, now, because its first byte left after its permit had closed. So the permits
-- after it keep their distance. The script only takes permits away: a call that is lost or repeated does no harm.
-- KEYS clock, then for each limit: its key and its log
-- ARGV tolerance_us, then for each limit: rule, ahead_us, edges, and then for each the window of the permit
-- reply: 1, or 0 if Redis has no count of a limit
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
        -- In its own window the request is counted already. If it may have arrived in the next window, that window
        -- counts it, too.
        local window = window_at(rule, now + rule.lateness)
        if window and window > granted and window >= limit.state.window then
            limit.state.used = window == limit.state.window and limit.state.used + 1 or 1
            limit.state.window = window
            save_all({limit}, now)
        end
    end
end
return 1
