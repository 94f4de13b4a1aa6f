-- more: takes ids out of the bucket for permits that an earlier take left over. It spends no permits.
-- KEYS bucket, present   ARGV how many ids
-- reply: {now_us, depth, ids}
local bucket, present = KEYS[1], KEYS[2]
local now = now_us()
local ids = redis.call("RPOP", bucket, tonumber(ARGV[1])) or {}
local marks = {}
for _, id in ipairs(ids) do
    marks[#marks + 1] = whole(now)
    marks[#marks + 1] = id
end
if #ids > 0 then
    redis.call("ZADD", present, unpack(marks))
end
return {now, redis.call("LLEN", bucket), ids}
