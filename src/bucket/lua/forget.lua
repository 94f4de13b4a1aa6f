-- forget: deletes a count of an older generation than the given one. Then the next take replies FORGOT, and a node
-- restores the count from the ledger.
-- With "count" the script keeps the rule, and the time at which a node last asked under it. So a stricter rule still
-- keeps looser rules out. With "rule" it deletes both.
-- KEYS limit, log   ARGV generation, "count" | "rule"
-- reply: 1 if it deleted a count, 0 if not
local kept = redis.call("HMGET", KEYS[1], "generation", "rule", "seen")
local generation = natural(kept[1])
if not generation or generation >= tonumber(ARGV[1]) then
    return 0
end
redis.call("DEL", KEYS[1], KEYS[2])
if ARGV[2] == "count" and kept[2] and kept[3] then
    redis.call("HSET", KEYS[1], "rule", kept[2], "seen", kept[3])
end
return 1
