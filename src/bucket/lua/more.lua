-- more: takes ids out of the bucket for permits that an earlier take left over. It spends no permits.
-- KEYS bucket, present   ARGV how many ids
-- reply: {now_us, depth, ids}
local bucket, present = KEYS[1], KEYS[2]
local now = now_us()
local ids = pop(bucket, present, tonumber(ARGV[1]), now)
return {now, redis.call("LLEN", bucket), ids}
