-- rule: what a limit counts by, and which of several files' rules is in force.
-- The limit's key is a hash: rule (its text), seen (when a node last asked under that very rule),
-- generation, server (whose memory this is), rest_until (nothing is granted before), turn, and what the algorithm keeps.

-- "ALGORITHM PERMITS PER LATENESS BURST SEGMENTS ZONE", times in us
local function read_rule(text)
    local algorithm, permits, per, lateness, burst, segments, zone =
        string.match(text, "^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$")
    local rule = {
        text = text, algorithm = algorithm, permits = tonumber(permits), per = tonumber(per),
        lateness = tonumber(lateness), burst = tonumber(burst), segments = tonumber(segments), zone = zone,
    }
    rule.life = math.floor(rule.lateness / 2) -- the other half of the lateness is kept for the way to the bank
    rule.spacing = math.ceil((rule.per + rule.lateness) / rule.permits)
    if algorithm == "fixed_window" then
        rule.spacing = math.ceil(rule.per / rule.permits) -- a window is as long as it is; no turn must fall between two
    elseif algorithm == "paced_strict" then
        -- Each first byte may be `lateness` late by itself: so any two are per / permits apart.
        rule.spacing = math.ceil(rule.per / rule.permits) + rule.lateness
    elseif algorithm == "sliding_window" then
        rule.spacing = math.ceil(rule.spacing * (rule.segments + 1) / rule.segments)
    end
    return rule
end

-- Whether what was counted under one rule can be read under the other as it stands.
local function same_shape(a, b)
    return a.algorithm == b.algorithm and a.per == b.per and a.lateness == b.lateness
        and a.segments == b.segments and a.zone == b.zone
end

-- The lower rate is stricter; of equal rates the one that lets fewer through at once. A total order,
-- so that all nodes agree.
local function is_stricter(a, b)
    local x, y = a.permits * b.per, b.permits * a.per
    if x ~= y then
        return x < y
    end
    local p, q = admit[a.algorithm].at_once(a), admit[b.algorithm].at_once(b)
    if p ~= q then
        return p < q
    end
    if a.lateness ~= b.lateness then
        return a.lateness > b.lateness
    end
    return a.text < b.text
end

-- Whether a rule that was in force keeps another one out: it is stricter, and nodes still ask under it.
local function overrules(old, seen, proposed, now)
    return is_stricter(old, proposed) and seen > now - SEEN_FOR and seen < now + SEEN_FOR
end

-- Names a permit where no grid does; with the moment it opens it is the only one of its name.
local function ordinal(issued)
    return issued % 2147483647 + 1
end

-- Whose memory this is. A master that became a replica and then a master again is the same process, but
-- what it has is what the other one knew: each promotion begins another replication id.
local function server_id()
    local process = string.match(redis.call("INFO", "server"), "run_id:(%w+)") or error("INFO server names no run_id")
    return process .. (string.match(redis.call("INFO", "replication"), "master_replid:(%w+)") or "")
end

-- Finds the rule in force and what is counted under it.
-- limit: {key, log, proposed (text), ahead, edges}; gains rule, generation, state, offset.
-- steps: by how much Redis's clock was set forward, all in all. Kinds that forget count by a clock without
-- those steps, `offset` behind Redis's own.
-- reply: true | false, if Redis does not know, and the ledger must tell
local function enter(limit, now, tolerance, steps)
    local proposed = read_rule(limit.proposed)
    local kept = redis.call("HMGET", limit.key, "rule", "seen", "generation", "server", "edges", "steps", "rest_until")
    if not kept[1] or not kept[3] then
        return false
    end
    local rule, seen, edges = proposed, tonumber(kept[2]) or 0, limit.edges
    local forgets = admit[rule.algorithm].forgets
    local moved = steps - (tonumber(kept[6]) or 0)
    if moved < 0 and forgets then
        return false -- what is known of the clock was lost
    elseif moved ~= 0 then
        redis.call("HSET", limit.key, "steps", whole(steps))
    end
    limit.offset = forgets and steps or 0
    if kept[1] ~= limit.proposed then
        local old = read_rule(kept[1])
        if overrules(old, seen, proposed, now) then
            rule = old
            edges = kept[5] or ""
            limit.offset = admit[rule.algorithm].forgets and steps or 0
        elseif same_shape(old, proposed) and admit[rule.algorithm].adapt then
            redis.call("HSET", limit.key, "rule", limit.proposed, "seen", whole(now), "edges", limit.edges)
            admit[rule.algorithm].adapt(limit.key, old, proposed, now - limit.offset)
        else
            -- Of fixed windows permits that are not claimed yet must be void; the last slot says too little of those before.
            return false
        end
    elseif seen < now - 1000000 or seen > now then
        redis.call("HSET", limit.key, "seen", whole(now), "edges", limit.edges)
    end
    if kept[4] ~= server_id() then
        return false
    end
    limit.rule = rule
    limit.rest_until = tonumber(kept[7]) or 0
    limit.generation = kept[3]
    rule.edges = edges
    limit.state = admit[rule.algorithm].load(limit, rule, now - limit.offset, tolerance + limit.ahead + ASKED_AHEAD)
    return limit.state ~= nil
end

-- The first permit of a limit from `at` on, by Redis's clock: when it opens and closes.
local function next_of(limit, at)
    local opens, closes = admit[limit.rule.algorithm].next(limit.rule, limit.state, at - limit.offset)
    return opens + limit.offset, closes + limit.offset
end

-- Spends it; reply: its window, slot or moment by Redis's clock, and its ordinal.
local function spend_of(limit, at)
    local window, nth = admit[limit.rule.algorithm].spend(limit.rule, limit.state, at - limit.offset)
    return window + limit.offset, nth
end

local function left_of(limit, now)
    return admit[limit.rule.algorithm].left(limit.rule, limit.state, now - limit.offset)
end
