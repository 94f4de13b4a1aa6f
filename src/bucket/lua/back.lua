-- back: puts ids at the front of the bucket again, in their order. They were taken a moment ago, and no permit was
-- left for them. The bucket may exceed its capacity for a moment, by the ids that had left it.
-- KEYS bucket, present   ARGV ids, the oldest first
-- reply: {now_us, depth, added}
local bucket, present = KEYS[1], KEYS[2]
local added = 0
for i = #ARGV, 1, -1 do
    local id = ARGV[i]
    if tonumber(redis.call("ZSCORE", present, id) or 0) ~= IN_BUCKET then
        redis.call("RPUSH", bucket, id)
        redis.call("ZADD", present, IN_BUCKET, id)
        added = added + 1
    end
end
return {now_us(), redis.call("LLEN", bucket), added}
