-- reservations: deletes the times that waiting nodes reserved at these limits, because one of the nodes is gone. A
-- reserved time stands in the field `turn`.
-- KEYS limits
-- reply: 1
for _, key in ipairs(KEYS) do
    redis.call("HDEL", key, "turn")
end
return 1
