-- prelude: the beginning of every verb: times in us, the clock, and whole numbers.
-- `script.rs` writes the reply codes, and the times that Rust also needs, above this line.
local IN_BUCKET = 9000000000000000 -- the score of an id in the bucket; the score of a taken id is the time of its take
local TAKEN_FOR = 2000000        -- for this long a taken id is not put in again: its claim is under way
local FUTURE = 10000000          -- a count further ahead than this comes from a clock that was wrong
local admit = {}

local function now_us()
    local t = redis.call("TIME")
    return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- A stored text as a whole number from 0 to 2^53 - 1, or nil. Whatever else stands in Redis, a node did not write it.
-- 2^53 itself is left out: to Lua 2^53 + 1 is the same number, so no generation would be greater.
local function natural(text)
    local n = tonumber(text)
    return n and n >= 0 and n < 9007199254740992 and n == math.floor(n) and n or nil
end

-- Writes a number with all its digits. Lua's own conversion drops digits of times in us.
local function whole(number)
    return string.format("%.0f", number)
end

-- An element of a bucket, for a reply. Anybody who may write to Redis may have written a text of any length, and a node keeps
-- replies in its memory. So a longer text than an id is cut. What is left of it is no refund's id, or the claim drops it.
local function id_of(element)
    return element and string.sub(element, 1, 20)
end

-- Takes ids out of a bucket and marks them as taken now. reply: the ids
local function pop(bucket, present, most, now)
    local ids, marks = redis.call("RPOP", bucket, most) or {}, {}
    for i, element in ipairs(ids) do
        ids[i] = id_of(element)
        marks[2 * i - 1], marks[2 * i] = whole(now), ids[i]
    end
    if #ids > 0 then
        redis.call("ZADD", present, unpack(marks))
    end
    return ids
end
