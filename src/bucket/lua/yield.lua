-- yield: a take that lets another bucket go first. While that bucket has ids, the take gets one permit, and the next
-- permit only after some time.
-- KEYS as of take, then the bucket that goes first, and the key with the time of the next permit
-- ARGV as of take, then the time between two permits in us
-- reply: as of take
local turn = table.remove(KEYS)
local first = table.remove(KEYS)
local between = tonumber(table.remove(ARGV))

if redis.call("LLEN", KEYS[1]) == 0 or redis.call("LLEN", first) == 0 then
    return take()
end
local now = now_us()
local at = tonumber(redis.call("HGET", turn, "at")) or 0
-- A time further ahead was written before the clock or the configuration changed.
if at > now and at <= now + between then
    return {DENIED, now, redis.call("LLEN", KEYS[1]), 0, at - now, 1, {}}
end
ARGV[1] = "1"
local reply = take()
if reply[1] == GRANTED then
    redis.call("HSET", turn, "at", whole(now + between))
end
return reply
