-- fixed_window: at most `permits` in each aligned window of `per`, by Redis's clock.
-- Keeps window (its first microsecond), used (permits granted in it) and owed (the window that the ledger's count
-- gave last). The limit moves to the next window when the window is used up, or when it closes too soon to be of use.
-- Windows only move forward.
admit.fixed_window = {}
local fixed_window = admit.fixed_window

-- The window that contains a moment: its first microsecond, and the first microsecond of the next window.
local function window_at(rule, at)
    if not rule.zone then
        local start = at - at % rule.per
        return start, start + rule.per
    end
    -- The days of a time zone differ in length, so the node gives their beginnings.
    local start
    for edge in string.gmatch(rule.edges, "%d+") do
        edge = tonumber(edge)
        if edge > at then
            return start, edge
        end
        start = edge
    end
    return nil
end

-- Whether the rule has a window that begins at this moment. A node with another time zone database may have written a
-- day with another midnight. Such a day is not used, and the ledger gives the count.
local function is_edge(rule, window)
    if not rule.zone then
        return true
    end
    for edge in string.gmatch(rule.edges, "%d+") do
        if tonumber(edge) == window then
            return true
        end
    end
    return false
end

-- The stored window and its count, or nil if they cannot be true. No node asks further ahead than half a `per`. A
-- window further ahead is true if the ledger's count gave it (owed). If not, Redis's clock was set back. restore.lua
-- counts no permit further ahead than `tolerance` and FUTURE. So a window beyond was given by a clock that was wrong.
local function known_window(limit, rule, now, tolerance)
    local kept = redis.call("HMGET", limit.key, "window", "used", "owed")
    local window, used, owed = natural(kept[1]), natural(kept[2]), natural(kept[3]) or 0
    owed = math.min(owed, now + tolerance + FUTURE)
    local start, next_start = window_at(rule, now)
    if window and used and start and is_edge(rule, window) and window <= math.max(next_start, now + LONGEST_LEAD_TIME + rule.per / 2, owed) then
        return window, used
    end
end

-- The time between two permits. Windows last `per`, and no turn may fall between two windows.
function fixed_window.spacing(rule)
    return math.ceil(rule.per / rule.permits)
end

-- How many permits may be used within a short span. Of two rules with the same rate, the rule with fewer is stricter.
function fixed_window.at_once(rule)
    return 2 * rule.permits
end

-- How long after its grant a permit may matter.
function fixed_window.rest(rule)
    return math.min(rule.per, LIFETIME)
end

-- How many permits a node can get that asks at the right time.
function fixed_window.at_a_visit(rule)
    return rule.permits
end

function fixed_window.load(limit, rule, now, tolerance)
    local window, used = known_window(limit, rule, now, tolerance)
    return window and {window = window, used = used}
end

-- The first permit that can still be used at `at`: when it opens, when it closes, and its window.
function fixed_window.next(rule, state, at)
    local start, over = window_at(rule, math.max(at, state.window))
    if not start then
        return at + rule.per, at + rule.per -- after the last known day: ask again then
    end
    local used = start == state.window and state.used or 0
    if used >= rule.permits or at + 1000 >= over - rule.lateness then
        start, over = window_at(rule, over)
        if not start then
            return at + rule.per, at + rule.per
        end
    end
    return start, math.min(over - rule.lateness, math.max(at, start) + LIFETIME), start
end

-- reply: window, ordinal
function fixed_window.spend(rule, state, at)
    local _, _, window = fixed_window.next(rule, state, at)
    if window ~= state.window then
        state.window, state.used = window, 0
    end
    state.used = state.used + 1
    return window, state.used
end

-- How many permits are left now.
function fixed_window.left(rule, state, now)
    local start = window_at(rule, now)
    if not start or state.window > start then
        return 0
    end
    return start == state.window and rule.permits - math.min(state.used, rule.permits) or rule.permits
end

function fixed_window.save(limit, rule, state)
    redis.call("HSET", limit.key, "window", whole(state.window), "used", whole(state.used))
end

-- Moves a turn to the beginning of its window, because a window opens for all nodes at once.
function fixed_window.align(rule, at)
    if rule.zone then
        return at
    end
    return at - at % rule.per
end

-- Takes over the ledger's count: `used` permits of `window`, and the permits of later windows in the history.
function fixed_window.recall(limit, rule, now, ledger)
    local window, used = known_window(limit, rule, now, ledger.tolerance)
    if window and window > ledger.window then
        return
    elseif window == ledger.window then
        ledger.used = math.max(used, ledger.used)
    end
    for _, spent in ipairs(ledger.history) do
        local start = window_at(rule, spent.at)
        if start and start > ledger.window then
            ledger.window, ledger.used, ledger.later = start, spent.count, true
        elseif start == ledger.window and ledger.later then
            ledger.used = ledger.used + spent.count
        end
    end
    redis.call("HSET", limit.key, "window", whole(ledger.window), "used", whole(ledger.used), "owed", whole(ledger.window))
end
