-- withdraw: takes ids out of a line wherever they stand in it, because their refunds have ended. Those that were
-- taken a moment ago are left alone: their claim finds out.
-- KEYS bucket, present   ARGV ids
-- reply: {now_us, how many ids were looked at, how many were removed}; the caller comes again with the others
local MOST_STEPS = 20000 -- entries of the line that one call may walk past, whatever the line's length
local bucket, present = KEYS[1], KEYS[2]
local depth = math.max(1, redis.call("LLEN", bucket))
local looked, removed = 0, 0
for _, id in ipairs(ARGV) do
    if removed > 0 and removed * depth >= MOST_STEPS then
        break
    end
    looked = looked + 1
    if tonumber(redis.call("ZSCORE", present, id) or 0) == IN_LINE then
        redis.call("LREM", bucket, -1, id) -- from the end that is taken from
        redis.call("ZREM", present, id)
        removed = removed + 1
    end
end
return {now_us(), looked, removed}
