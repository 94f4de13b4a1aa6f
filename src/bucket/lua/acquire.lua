-- acquire: spends permits of one limit for somebody who wants all of them now, or none. A paced limit
-- may grant its next slot, within a second.
-- KEYS clock, the limit's key, its log
-- ARGV want, tolerance_us, rule, ahead_us, edges
-- reply: {GRANTED, now_us, left, standing, permits} | {DENIED, now_us, 0, 0, wait_us, 1, standing, left}
--      | {FORGOT, now_us, 1, generation, window, where it ends, whose memory}
local want, tolerance = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_us()
local limits, lost, nth = enter_all(2, 3, KEYS[1], now, tolerance)
if not limits then
    return forgot(lost, nth, now)
end
local limit = limits[1]
local rule = limit.rule
-- Slots are seldom just now: the next one will do, if it is near.
local has_slots = rule.algorithm == "paced" or rule.algorithm == "paced_strict"
local latest = has_slots and now + math.min(rule.spacing, 1000000) or now
local permits, at = grant(limits, want, now, latest)
if #permits < want then
    -- What was found in memory is not kept.
    limit.state = admit[rule.algorithm].load(limit, rule, now - limit.offset, tolerance + limit.ahead + ASKED_AHEAD)
    return {DENIED, now, 0, 0, whole(at - now), 1, standing(limits), left_of(limit, now)}
end
save_all(limits, now)
return {GRANTED, now, left_of(limit, now), standing(limits), permits}
