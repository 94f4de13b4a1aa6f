-- rights: tries each command that the verbs use, on a key of its own, and deletes the key again.
-- KEYS a key that nothing else uses
-- reply: what the server refused, as `COMMAND: reason`
local key = KEYS[1]
local refused = {}

local function try(...)
    local reply = redis.pcall(...)
    if type(reply) == "table" and reply.err then
        refused[#refused + 1] = ({...})[1] .. ": " .. reply.err
    end
end

try("TIME")
try("INFO", "server")
try("SET", key, "", "PX", "1000")
try("DEL", key)
try("LPUSH", key, "a", "b", "c")
try("RPUSH", key, "d")
try("LLEN", key)
try("LINDEX", key, "0")
try("LPOP", key)
try("RPOP", key)
try("LREM", key, "0", "b")
try("DEL", key)
try("HSET", key, "field", "1")
try("HGET", key, "field")
try("HMGET", key, "field")
try("HGETALL", key)
try("HDEL", key, "field")
try("DEL", key)
try("ZADD", key, "1", "a")
try("ZSCORE", key, "a")
try("ZCOUNT", key, "0", "1")
try("ZRANGEBYSCORE", key, "0", "1")
try("ZREVRANGEBYSCORE", key, "1", "0")
try("ZREMRANGEBYSCORE", key, "0", "0")
try("ZREM", key, "a")
try("DEL", key)
return refused
