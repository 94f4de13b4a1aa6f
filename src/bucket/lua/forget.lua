-- forget: drops what is counted under a generation older than the one given, so that the ledger is asked. The rule stays, and when a
-- node last asked under it: a stricter rule of another file keeps looser ones out all the same.
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
