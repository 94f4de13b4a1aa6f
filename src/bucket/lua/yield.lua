-- yield: a take that lets another line go first: while somebody stands there, it gets one permit, and the
-- next not before some time has passed.
-- KEYS as take's, then the line that goes first, and the turn
-- ARGV as take's, then how long in us
-- reply: as take's
local turn = table.remove(KEYS)
local first = table.remove(KEYS)
local between = tonumber(table.remove(ARGV))

if redis.call("LLEN", KEYS[1]) == 0 or redis.call("LLEN", first) == 0 then
    return take()
end
local now = now_us()
local at = tonumber(redis.call("HGET", turn, "at")) or 0
-- One that is further away was written before the clock or the rule changed.
if at > now and at <= now + between then
    return {DENIED, now, redis.call("LLEN", KEYS[1]), 0, at - now, 1, {}}
end
ARGV[1] = "1"
local reply = take()
if reply[1] == GRANTED then
    redis.call("HSET", turn, "at", whole(now + between))
end
return reply
