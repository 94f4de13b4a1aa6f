-- yield: a take that lets another bucket go first. While that bucket has ids, the take gets one permit for every
-- SENDS_EACH permits that the other bucket got. Permits count, and not time: the permits of a long window may all be
-- granted in its first seconds.
-- With "active" the calling node cannot reach the address for sends. If no node can, no permit is counted. So after a time
-- in which the slowest limit grants SENDS_EACH + 1 permits, and nobody got one, the take gets one.
-- KEYS as of take, then the bucket that goes first
-- ARGV as of take, with most_noted 0, then the time in us in which the slowest limit grants one permit, "active" | "all"
-- reply: as of take. Of a call without limits, a denial names the first limit of the channel: the node counts them all
local SOON = 100000 -- us
local first, share = table.remove(KEYS), KEYS[5]
local only_active, spacing = table.remove(ARGV) == "active", tonumber(table.remove(ARGV))

if redis.call("LLEN", KEYS[1]) == 0 or redis.call("LLEN", first) == 0 then
    return take()
end
local kept = redis.call("HMGET", share, "sends", "at")
local sends, at, now = natural(kept[1]) or SENDS_EACH, natural(kept[2]), now_us()
if only_active and sends < SENDS_EACH then
    if not at or at > now then
        redis.call("HSET", share, "at", whole(now))
    elseif now - at >= (SENDS_EACH + 1) * spacing then
        sends = SENDS_EACH
    end
end
local due = math.floor(sends / SENDS_EACH)
if due < 1 then
    local limits, lost, nth = enter_all(6, 9, KEYS[4], now, tonumber(ARGV[5]))
    if not limits then
        return forgot(lost, nth, now)
    end
    -- While the limits have permits, sends may use them up within moments.
    local wait = math.min(math.ceil((SENDS_EACH - sends) * spacing), SOON)
    if #limits > 0 then
        wait = math.max(wait, first_common(limits, now) - now)
    end
    return {DENIED, now, redis.call("LLEN", KEYS[1]), 0, wait, 1, effective_rules(limits)}
end
ARGV[1] = whole(math.min(tonumber(ARGV[1]), due))
local reply = take()
if reply[1] == GRANTED then
    redis.call("HSET", share, "sends", whole(sends - SENDS_EACH * #reply[8]), "at", whole(now))
end
return reply
