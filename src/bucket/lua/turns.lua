-- turns: deletes the turns of the nodes that wait for these limits, because one of the nodes is gone.
-- KEYS limits
-- reply: 1
for _, key in ipairs(KEYS) do
    redis.call("HDEL", key, "turn")
end
return 1
