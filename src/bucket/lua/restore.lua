-- restore: writes the ledger's count of a limit, and the generation under which permits are good.
-- It never makes a count of the same generation smaller.
-- KEYS limit, log, clock
-- ARGV rule, generation, edges, tolerance_us,
--      of a fixed_window only: window, permits used in it, in how many us the last permit of another server has left,
--      the server in whose memory the generation is counted, "" if it is not known,
--      when Redis replied FORGOT to the caller, "" if any restore of this generation is good: see below,
--      then triples for groups of permits: when the last of them opened, by the clock that granted them, their
--      number, and how many us ago that was at least, by Postgres's clock, "" if it is not known
-- reply: 1, or 0 if Redis has a newer generation, if a stricter rule is in effect, if this is another server, or if
-- another node restores the count by now
local rule, generation = read_rule(ARGV[1]), tonumber(ARGV[2])
rule.edges = ARGV[3]
if ARGV[8] ~= "" and ARGV[8] ~= server_id() then
    return 0 -- one generation is counted in the memory of one server
end
local limit = {key = KEYS[1], log = KEYS[2]}
local now = now_us()
local ledger = {tolerance = tonumber(ARGV[4]), window = tonumber(ARGV[5]), used = tonumber(ARGV[6]), rest = tonumber(ARGV[7]), history = {}}
local set = redis.call("HMGET", KEYS[3], "steps", "at")
local steps, stepped = steps_of(KEYS[3], set[1], now), natural(set[2])
local offset = admit[rule.algorithm].forgets and steps or 0
for i = 10, #ARGV, 3 do
    -- No permit opens further ahead. A later time was written before the clock was set back.
    local furthest = now + ledger.tolerance + FUTURE
    local at = math.min(tonumber(ARGV[i]), furthest)
    local over = tonumber(ARGV[i + 2])
    local counted = at - offset
    if over and admit[rule.algorithm].forgets then
        counted = math.max(counted, math.min(now - over, furthest) - offset) -- the clock that granted them may have been behind this one
    elseif stepped and at <= stepped + LONGEST_LEAD_TIME and rule.algorithm ~= "fixed_window" then
        -- Perhaps these permits were named before the clock was set forward. Then they are younger than their names
        -- say.
        counted = math.max(counted, math.min(counted + steps, now - offset))
    end
    ledger.history[#ledger.history + 1] = {at = math.max(counted, 0), count = tonumber(ARGV[i + 1])}
end
local kept = redis.call("HMGET", limit.key, "rule", "generation", "server", "seen", "telling")
local old = kept[1] and read_rule(kept[1])
if overrules(old, natural(kept[4]) or 0, rule, now) then
    return 0 -- the caller read the ledger long ago; nodes ask under a stricter rule now
end
local kept_generation = natural(kept[2]) or 0
if kept_generation > generation then
    return 0
end
if ARGV[9] ~= "" and kept[5] and kept[5] ~= ARGV[9] then
    -- The other node has begun a newer generation, or will. Redis would grant permits of this one, which the ledger
    -- refuses: then nodes would make Redis forget, and restore, without end. The ledger is slow, so the other node gets more time.
    local took = now - (tonumber(ARGV[9]) or now)
    if took > 0 then
        redis.call("HSET", limit.key, "telling_for", whole(math.min(2 * took, LONGEST_RESTORING)))
    end
    return 0
end
local known = old and kept_generation == generation and same_shape(old, rule)
if known and admit[rule.algorithm].forgets then
    if kept[3] == server_id() and admit[rule.algorithm].load(limit, rule, now - offset, ledger.tolerance) then
        return 1
    end
end
if not known then
    redis.call("DEL", limit.key, limit.log)
end
redis.call("HSET", limit.key, "rule", rule.text, "seen", whole(now), "generation", whole(generation), "server", server_id(), "edges", rule.edges, "steps", whole(steps))
redis.call("HDEL", limit.key, "telling", "telling_for", "heard")
if ledger.rest then
    -- Permits of another server leave by that server's clock. After them a window begins, so that no span meets three
    -- windows.
    local over = now + ledger.rest
    if rule.per <= LIFETIME then
        over = select(2, window_at(rule, over))
    end
    if over and over > now then
        redis.call("HSET", limit.key, "rest_until", whole(over))
    end
end
admit[rule.algorithm].recall(limit, rule, now - offset, ledger)
return 1
