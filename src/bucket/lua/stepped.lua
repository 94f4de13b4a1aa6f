-- stepped: a node saw Redis's clock step. Remembered once, however many nodes see it.
-- KEYS clock   ARGV by how many us, when by the old clock the node last saw it go right
-- reply: 1 if it is news
local by, right = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_us()
local kept = redis.call("HMGET", KEYS[1], "at", "by")
local kept_at, kept_by = tonumber(kept[1]), tonumber(kept[2])
if kept_at and kept_at <= now and math.abs(kept_by - by) < 50000 and right + by <= kept_at + 10000 then
    return 0
end
redis.call("HSET", KEYS[1], "at", whole(now), "by", whole(by))
return 1
