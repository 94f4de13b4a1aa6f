-- fill: puts into a bucket the ids that are not in it yet. It skips ids that were taken a moment ago.
-- KEYS bucket, present, feeding
-- ARGV capacity, "back" | "front", then ids, the oldest first
-- "back" stops at the capacity. "front" makes room: the newest ids leave the bucket again. That loses nothing,
-- because their rows are still ready.
-- reply: {now_us, depth, added}
local IN_VAIN_MS = 4000 -- after a fill without new ids, no taker is asked to fill the bucket for this long
local bucket, present, feeding = KEYS[1], KEYS[2], KEYS[3]
local capacity, front = tonumber(ARGV[1]), ARGV[2] == "front"
local now = now_us()

redis.call("ZREMRANGEBYSCORE", present, "-inf", whole(now - TAKEN_FOR))
-- Times in the future were written while Redis's clock was ahead.
redis.call("ZREMRANGEBYSCORE", present, "(" .. whole(now + 1000000), "(" .. whole(IN_BUCKET))
-- No node writes a higher mark. It would keep its id out of the bucket for ever.
redis.call("ZREMRANGEBYSCORE", present, "(" .. whole(IN_BUCKET), "+inf")
local depth = redis.call("LLEN", bucket)
if redis.call("ZCOUNT", present, IN_BUCKET, IN_BUCKET) ~= depth then
    -- One of the two keys was lost or changed by hand. The script empties the bucket; the ids come back from their
    -- rows.
    redis.call("DEL", bucket)
    redis.call("ZREMRANGEBYSCORE", present, IN_BUCKET, IN_BUCKET)
    depth = 0
end

local fresh, seen = {}, {}
for i = 3, #ARGV do
    local id = ARGV[i]
    if not front and depth + #fresh >= capacity then
        break
    end
    if #fresh < capacity and not seen[id] and not redis.call("ZSCORE", present, id) then
        seen[id] = true
        fresh[#fresh + 1] = id
    end
end

for first = 1, #fresh, 500 do
    local ids, marks = {}, {}
    for i = first, math.min(first + 499, #fresh) do
        local id = front and fresh[#fresh + 1 - i] or fresh[i]
        ids[#ids + 1] = id
        marks[#marks + 1] = IN_BUCKET
        marks[#marks + 1] = id
    end
    redis.call(front and "RPUSH" or "LPUSH", bucket, unpack(ids))
    redis.call("ZADD", present, unpack(marks))
end
depth = depth + #fresh
if depth > capacity then
    local out = redis.call("LPOP", bucket, depth - capacity)
    for _, id in ipairs(out) do
        redis.call("ZREM", present, id)
    end
    depth = capacity
end
if #fresh > 0 then
    redis.call("DEL", feeding)
elseif depth > 0 then
    -- All due refunds are in the bucket already. A taker that finds the bucket empty asks for a fill without this
    -- flag.
    redis.call("SET", feeding, "1", "PX", IN_VAIN_MS)
end
return {now, depth, #fresh}
