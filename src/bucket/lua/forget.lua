-- forget: drops what is counted under a generation older than the one given, so that the ledger is asked.
-- KEYS limit, log   ARGV generation
-- reply: 1 if something was dropped
local generation = tonumber(redis.call("HGET", KEYS[1], "generation"))
if not generation or generation >= tonumber(ARGV[1]) then
    return 0
end
redis.call("DEL", KEYS[1], KEYS[2])
return 1
