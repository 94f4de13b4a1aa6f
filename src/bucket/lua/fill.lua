-- fill: puts ids in line that are not there yet; those that are, or were taken just now, are left alone.
-- KEYS bucket, present, feeding
-- ARGV capacity, "back" | "front", then ids, the oldest first
-- "back" stops at the capacity; "front" makes room by sending the newest ids out of the line again,
-- which loses nothing: their rows are still ready.
-- reply: {now_us, depth, added}
local IN_VAIN_MS = 4000 -- nobody is asked to feed a low line again for so long, where there was nothing to put in it
local bucket, present, feeding = KEYS[1], KEYS[2], KEYS[3]
local capacity, front = tonumber(ARGV[1]), ARGV[2] == "front"
local now = now_us()

redis.call("ZREMRANGEBYSCORE", present, "-inf", whole(now - TAKEN_FOR))
-- Marks from the future were made while Redis's clock was ahead.
redis.call("ZREMRANGEBYSCORE", present, "(" .. whole(now + 1000000), "(" .. whole(IN_LINE))
local depth = redis.call("LLEN", bucket)
if redis.call("ZCOUNT", present, IN_LINE, IN_LINE) ~= depth then
    -- Half of the pair was lost or touched by hand. Start the line anew; the rows remember.
    redis.call("DEL", bucket)
    redis.call("ZREMRANGEBYSCORE", present, IN_LINE, IN_LINE)
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
        marks[#marks + 1] = IN_LINE
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
    -- All that is due stands here. Whoever finds the line empty asks without this flag.
    redis.call("SET", feeding, "1", "PX", IN_VAIN_MS)
end
return {now, depth, #fresh}
