-- remind: tells a limit how many permits of a window the ledger has seen spent. Never lowers a count
-- of that window or a later one, unless the count lies beyond anything that could have been granted.
-- KEYS limit   ARGV window, used, per_us
-- reply: 1
local window, used, per = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = now_us()
local current = now - now % per
local kept = redis.call("HMGET", KEYS[1], "window", "used", "per")
local kept_window, kept_used, kept_per = tonumber(kept[1]), tonumber(kept[2]), tonumber(kept[3])
if not kept_window or not kept_used or kept_per ~= per or kept_window < window or kept_window > current + per then
    redis.call("HSET", KEYS[1], "window", whole(window), "used", whole(used), "per", whole(per))
elseif kept_window == window and kept_used < used then
    redis.call("HSET", KEYS[1], "used", whole(used))
end
return 1
