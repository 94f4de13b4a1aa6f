-- look: reads how many ids each bucket has, and with "heads" also the id that leaves it next. It changes nothing.
-- KEYS buckets   ARGV "heads" | "depths"
-- reply: for each bucket its depth and its head; the head is "" if the bucket is empty, or was not asked for
local found = {}
for _, bucket in ipairs(KEYS) do
    found[#found + 1] = redis.call("LLEN", bucket)
    found[#found + 1] = ARGV[1] == "heads" and id_of(redis.call("LINDEX", bucket, -1)) or ""
end
return found
