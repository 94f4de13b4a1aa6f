-- give_up: ends a node's time to restore a count, because the node could not read the ledger. The next take replies FORGOT.
-- KEYS limit   ARGV when Redis replied FORGOT to the node
-- reply: 1, or 0 if another node restores the count by now
if redis.call("HGET", KEYS[1], "telling") ~= ARGV[1] then
    return 0
end
redis.call("HDEL", KEYS[1], "telling", "telling_for", "heard")
return 1
