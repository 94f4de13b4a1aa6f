-- still: notes that a node still restores a count. After SILENT_FOR without such a note another node may restore it (grant.lua).
-- KEYS limit   ARGV when Redis replied FORGOT to the node
-- reply: 1, or 0 if another node restores the count by now
if redis.call("HGET", KEYS[1], "telling") ~= ARGV[1] then
    return 0
end
redis.call("HSET", KEYS[1], "heard", whole(now_us()))
return 1
