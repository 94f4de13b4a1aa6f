-- take: spends permits and takes as many ids out of the bucket. It does both or neither.
-- KEYS bucket, present, feeding, clock, share, then for each limit: its key and its log
-- ARGV want, low_water, feeding_ms, lead_time_us, tolerance_us, most_noted, after_us, within_us, then for each limit: rule,
--      ahead_us, edges
-- reply: {GRANTED, now_us, depth, is_low, wait_us, limit (from 1), effective, ids, permits}
--      | {DENIED, now_us, depth, is_low, wait_us, limit (from 1), effective}
--      | {EMPTY, now_us} | {FORGOT, now_us, limit (from 1), generation, window, window_end, server}
--      | {RESTORING, now_us, wait_us, limit (from 1)}: another node restores the count that Redis forgot
-- wait_us: 0 with GRANTED if the limits have more permits now
-- effective: for each limit its generation, and the effective rule, or "" if it is the proposed rule
-- after_us, within_us: no permit opens earlier than `after_us` from now, nor later than `within_us` after that. So permits
-- of a node's own share and of Redis open together. 0 and a large number where the node counts no share
-- most_noted: up to how many permits of sends count for later inquiries; 0 to count none
-- permits: for each id {opens_us, closes_us, then for each limit window and ordinal}
local bucket, present, feeding, clock, share = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local want, low_water, feeding_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local lead_time, tolerance, most_noted = math.min(tonumber(ARGV[4]), LONGEST_LEAD_TIME), tonumber(ARGV[5]), tonumber(ARGV[6])
local after, within = tonumber(ARGV[7]), tonumber(ARGV[8])
local now = now_us()

local depth = redis.call("LLEN", bucket)
if depth == 0 then
    return {EMPTY, now}
end
want = math.min(want, depth)

-- Asks one taker at a time to fill a bucket that runs low. The flag only saves work: a second fill does no harm.
local function should_feed(left)
    if left < low_water and redis.call("SET", feeding, "1", "NX", "PX", feeding_ms) then
        return 1
    end
    return 0
end

local limits, lost, nth = enter_all(6, 9, clock, now, tolerance)
if not limits then
    return forgot(lost, nth, now)
end

local permits, wait, blocker = {}, 0, 1
local taken = want
if #limits > 0 then
    local ahead = math.huge
    for _, limit in ipairs(limits) do
        ahead = math.min(ahead, limit.ahead)
    end
    local from, at = now + math.max(lead_time, math.min(after, lead_time + ahead)), nil
    permits, at, blocker = grant(limits, want, from, math.min(from + within, now + lead_time + ahead))
    -- Where `within` is short, there may be permits just after it: the caller asks for them at once, without a turn.
    if at and (#permits == 0 or within >= ahead) then
        wait = come_back(limits[blocker], at, want, now, lead_time, math.min(within, ahead), #permits)
    end
    taken = #permits
    if taken == 0 then
        return {DENIED, now, depth, should_feed(depth), wait, blocker, effective_rules(limits)}
    end
    save_all(limits, now)
end

local ids = pop(bucket, present, taken, now)
if most_noted > 0 then
    -- yield.lua counts the permits of inquiries against these. It asks when the last one was granted.
    local noted = natural(redis.call("HGET", share, "sends")) or SENDS_EACH
    redis.call("HSET", share, "sends", whole(math.min(math.max(noted, 0) + taken, most_noted)), "at", whole(now))
end
return {GRANTED, now, depth - taken, should_feed(depth - taken), wait, blocker or 1, effective_rules(limits), ids, permits}
