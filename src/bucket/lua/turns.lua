-- turns: gives up the turns that were handed out, because some of those who have them are gone.
-- KEYS limits
-- reply: 1
for _, key in ipairs(KEYS) do
    redis.call("HDEL", key, "turn")
end
return 1
