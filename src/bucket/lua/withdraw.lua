-- withdraw: removes ids from a bucket, wherever they are in it, because their refunds have ended. It skips ids that
-- were taken a moment ago: their claim drops them.
-- KEYS bucket, present   ARGV ids
-- reply: {now_us, how many ids were looked at, how many were removed}; the caller calls again for the others
local MOST_STEPS = 20000 -- about the most entries of the bucket that one call passes, however deep the bucket is
local bucket, present = KEYS[1], KEYS[2]
local depth = math.max(1, redis.call("LLEN", bucket))
local looked, removed = 0, 0
for _, id in ipairs(ARGV) do
    if removed > 0 and removed * depth >= MOST_STEPS then
        break
    end
    looked = looked + 1
    if tonumber(redis.call("ZSCORE", present, id) or 0) == IN_BUCKET then
        redis.call("LREM", bucket, -1, id) -- searches from the end at which ids are taken
        redis.call("ZREM", present, id)
        removed = removed + 1
    end
end
return {now_us(), looked, removed}
