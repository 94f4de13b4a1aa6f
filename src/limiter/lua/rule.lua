-- rule: what a limit counts by, and which of several files' rules is in force.
-- The limit's key is a hash: rule (its text), seen (when a node last asked under that very rule),
-- generation, server (whose memory this is), turn, and what the algorithm keeps.
local SEEN_FOR = 3000000 -- us a rule that nobody asks under any more still overrules looser ones

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
    if algorithm == "sliding_window" then
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

-- Names a permit where no grid does; with the moment it opens it is the only one of its name.
local function ordinal(issued)
    return issued % 2147483647 + 1
end

local function server_id()
    return string.match(redis.call("INFO", "server"), "run_id:(%w+)") or "unknown"
end

-- Finds the rule in force and what is counted under it.
-- limit: {key, log, proposed (text), ahead, edges}; gains rule, generation, state.
-- reply: true | false, if Redis does not know, and the ledger must tell
local function enter(limit, now, tolerance)
    local proposed = read_rule(limit.proposed)
    local kept = redis.call("HMGET", limit.key, "rule", "seen", "generation", "server", "edges")
    if not kept[1] or not kept[3] then
        return false
    end
    local rule, seen, edges = proposed, tonumber(kept[2]) or 0, limit.edges
    if kept[1] ~= limit.proposed then
        local old = read_rule(kept[1])
        if is_stricter(old, proposed) and seen > now - SEEN_FOR and seen < now + SEEN_FOR then
            rule = old
            edges = kept[5] or ""
        elseif same_shape(old, proposed) and admit[rule.algorithm].forgets then
            redis.call("HSET", limit.key, "rule", limit.proposed, "seen", whole(now), "edges", limit.edges)
            if admit[rule.algorithm].adapt then
                admit[rule.algorithm].adapt(limit.key, old, proposed, now)
            end
        else
            -- Also for kinds with numbers: those of the old rule that are not claimed yet must be void.
            return false
        end
    elseif seen < now - 1000000 or seen > now then
        redis.call("HSET", limit.key, "seen", whole(now), "edges", limit.edges)
    end
    if admit[rule.algorithm].forgets and kept[4] ~= server_id() then
        return false
    end
    limit.rule = rule
    limit.generation = kept[3]
    rule.edges = edges
    limit.state = admit[rule.algorithm].load(limit, rule, now, tolerance + limit.ahead + ASKED_AHEAD)
    return limit.state ~= nil
end
