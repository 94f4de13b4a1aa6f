-- fixed_window: at most `permits` in each aligned window of `per`, by Redis's clock.
-- The limit's key is a hash: window (its first microsecond), used (permits granted in it), per.
-- A window is left for the next one when it is used up, or too nearly over to be of use; the next
-- may be entered `ahead` of its opening. Windows only move forward, so no window is counted twice.
admit.fixed_window = {}

-- `floor` is when another limit's window opens: a window that closes before it is of no use either.
-- reply: available, wait_us, window, used
--      | FORGOT, nil, window, the window's length under which older counts were kept (0 if none)
function admit.fixed_window.look(key, limit, now, floor)
    local current = now - now % limit.per
    local kept = redis.call("HMGET", key, "window", "used", "per")
    local window, used, per = tonumber(kept[1]), tonumber(kept[2]), tonumber(kept[3])
    if not window or not used or per ~= limit.per or window > current + limit.per then
        -- Never seen, counted in other windows, or Redis's clock went back: ask the ledger.
        return FORGOT, nil, current, per or 0
    end
    if window < current then
        window, used = current, 0
    end
    local closes = window + limit.per - limit.lateness
    if used >= limit.permits or math.max(now, floor) + HASTE >= closes then
        local wait = window + limit.per - limit.ahead - now
        if wait > 0 then
            return 0, wait, window, used
        end
        window, used = window + limit.per, 0
    elseif window - now > limit.ahead then
        return 0, window - limit.ahead - now, window, used -- the clock went back a little
    end
    return limit.permits - used, 0, window, used
end

-- reply: window, first ordinal, opens, closes
function admit.fixed_window.spend(key, limit, window, used, count)
    redis.call("HSET", key, "window", whole(window), "used", whole(used + count), "per", whole(limit.per))
    return window, used + 1, window, window + limit.per - limit.lateness
end
