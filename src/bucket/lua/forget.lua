-- forget: drops what is counted under a generation older than the one given, so that the ledger is asked.
-- The script keeps the rule and the time of the last question under it: a stricter rule still keeps looser ones out.
-- KEYS limit, log   ARGV generation
-- reply: 1 if something was dropped
local kept = redis.call("HMGET", KEYS[1], "generation", "rule", "seen")
local generation = tonumber(kept[1])
if not generation or generation >= tonumber(ARGV[1]) then
    return 0
end
redis.call("DEL", KEYS[1], KEYS[2])
redis.call("HSET", KEYS[1], "rule", kept[2], "seen", kept[3])
return 1
