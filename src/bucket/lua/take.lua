-- take: spends permits and takes as many ids out of the line, or neither.
-- KEYS bucket, present, feeding, then one for each limit
-- ARGV want, low_water, feeding_ms, then for each limit: algorithm, permits, per_us, lateness_us, ahead_us
-- reply: {GRANTED, now_us, depth, feed, ids, {{window, first ordinal, opens_us, closes_us}, ...}}
--      | {DENIED, now_us, depth, feed, wait_us, limit (from 1)}
--      | {EMPTY, now_us} | {FORGOT, now_us, limit (from 1), window, older windows' length}
local bucket, present, feeding = KEYS[1], KEYS[2], KEYS[3]
local want, low_water, feeding_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = now_us()

local depth = redis.call("LLEN", bucket)
if depth == 0 then
    return {EMPTY, now}
end

-- One taker at a time is asked to feed a line that runs low; the flag only saves work.
local function asked_to_feed(left)
    if left < low_water and redis.call("SET", feeding, "1", "NX", "PX", feeding_ms) then
        return 1
    end
    return 0
end

local limits = {}
for i = 1, #KEYS - 3 do
    local at = 3 + (i - 1) * 5
    limits[i] = {
        algorithm = ARGV[at + 1],
        permits = tonumber(ARGV[at + 2]),
        per = tonumber(ARGV[at + 3]),
        lateness = tonumber(ARGV[at + 4]),
        ahead = tonumber(ARGV[at + 5]),
    }
end

-- All limits must grant in windows that overlap: if one is ahead in its next window, the others are
-- looked at again from there. Looking changes nothing.
local count, looked, longest, longest_limit
local floor, rounds = 0, 0
repeat
    local before = floor
    count, looked, longest, longest_limit = math.min(want, depth), {}, 0, 0
    for i, limit in ipairs(limits) do
        local available, wait, window, used = admit[limit.algorithm].look(KEYS[3 + i], limit, now, floor)
        if not wait then
            return {FORGOT, now, i, window, used}
        end
        if wait > longest then
            longest, longest_limit = wait, i
        end
        count = math.min(count, available)
        looked[i] = {limit, window, used}
        if wait == 0 then
            floor = math.max(floor, window)
        end
    end
    rounds = rounds + 1
until floor == before or longest > 0 or rounds > 2 * #limits
if longest > 0 or count < 1 then
    return {DENIED, now, depth, asked_to_feed(depth), math.max(longest, 1000), math.max(longest_limit, 1)}
end

local permits = {}
for i, found in ipairs(looked) do
    local limit, window, used = found[1], found[2], found[3]
    permits[i] = {admit[limit.algorithm].spend(KEYS[3 + i], limit, window, used, count)}
end
local ids = redis.call("RPOP", bucket, count)
local marks = {}
for _, id in ipairs(ids) do
    marks[#marks + 1] = whole(now)
    marks[#marks + 1] = id
end
redis.call("ZADD", present, unpack(marks))
return {GRANTED, now, depth - count, asked_to_feed(depth - count), ids, permits}
