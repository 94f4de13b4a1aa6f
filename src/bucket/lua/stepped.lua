-- stepped: notes that a node saw a step of Redis's clock. It notes a step once, although many nodes report it.
-- KEYS clock   ARGV by how many us, and the node's last reading before the step, in us by the old clock
-- reply: 1 if the step is new, 0 if not
local by, right = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_us()
local kept = redis.call("HMGET", KEYS[1], "at", "by")
local kept_at, kept_by = natural(kept[1]), tonumber(kept[2]) or 0
-- A node's next step begins where its last one was noted: less than its own length may not make the two one.
local margin = math.min(10000, math.abs(by) / 4)
if kept_at and kept_at <= now and math.abs(kept_by - by) < 50000 and right + by <= kept_at + margin then
    return 0
end
redis.call("HSET", KEYS[1], "at", whole(now), "by", whole(by))
if by > 0 then
    local steps = natural(redis.call("HGET", KEYS[1], "steps")) or 0
    redis.call("HSET", KEYS[1], "steps", whole(steps + by))
end
return 1
