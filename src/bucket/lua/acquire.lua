-- acquire: spends permits of one limit for another service: all that it wants, now, or none. A paced limit may also
-- grant its next slot, if that slot opens within NEXT_SLOT.
-- KEYS clock, the limit's key, its log
-- ARGV want, tolerance_us, rule, ahead_us, edges
-- reply: {GRANTED, now_us, left, effective, permits} | {DENIED, now_us, wait_us, left}
--      | {FORGOT, now_us, 1, generation, window, window_end, server} | {RESTORING, now_us, wait_us, 1}
local want, tolerance = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_us()
local limits, lost, nth = enter_all(2, 3, KEYS[1], now, tolerance)
if not limits then
    return forgot(lost, nth, now)
end
local limit = limits[1]
local rule = limit.rule
-- A slot seldom opens at this very moment. So the next slot is good enough, if it opens soon.
local latest = admit[rule.algorithm].has_slots and now + math.min(rule.spacing, NEXT_SLOT) or now
local permits, at = grant(limits, want, now, latest)
if #permits < want then
    -- Drops the permits that `grant` spent in memory, so that `left_of` counts without them.
    limit.state = admit[rule.algorithm].load(limit, rule, now - limit.offset, tolerance + limit.ahead + LONGEST_LEAD_TIME)
    return {DENIED, now, whole(at - now), left_of(limit, now)}
end
save_all(limits, now)
return {GRANTED, now, left_of(limit, now), effective_rules(limits), permits}
