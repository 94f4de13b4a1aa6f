-- rule: reads the rule of a limit, and decides which rule is in effect when configuration files differ.
-- The limit's key is a hash: rule (see read_rule), seen (when a node last asked under this rule), generation, server (see
-- server_id), rest_until (nothing is granted before), turn (see come_back), and the fields of the algorithm.
--
-- Each algorithm is a table admit.NAME. fixed_window.lua says what its functions return. An algorithm leaves out what it
-- does not need:
-- needs: the number that only this algorithm has, and that its rule must have
-- spacing: the time between two permits, where it is not (per + lateness) / permits
-- forgets: spent permits become too old and count no more, so it counts by a clock without steps (see `enter`)
-- in_lumps: many permits become free at one moment; has_slots: each permit is a slot at a fixed moment
-- align: moves the time at which a node asks again to an opening
-- adapt: keeps the count when only the numbers of the rule change

local LONGEST_RULE = 1000 -- bytes; replies carry rules, and somebody may have written a longer text to Redis

-- Reads a rule: JSON with the fields of `Record` in rule.rs, times in us.
-- reply: nil if the text is no rule that this version knows
local function read_rule(text)
    if #text > LONGEST_RULE then
        return nil
    end
    local is_json, record = pcall(cjson.decode, text)
    if not is_json or type(record) ~= "table" or not admit[record.algorithm] then
        return nil
    end
    local function number(field, least)
        local n = record[field]
        return type(n) == "number" and n >= least and n == math.floor(n) and n or nil
    end
    local algorithm = record.algorithm
    local rule = {
        text = text, algorithm = algorithm, permits = number("permits", 1), per = number("per_us", 1),
        lateness = number("lateness_us", 0), burst = number("burst", 1), segments = number("segments", 1),
        zone = type(record.zone) == "string" and record.zone or nil,
    }
    local own = admit[algorithm].needs
    if not (rule.permits and rule.per and rule.lateness) or own and not rule[own] then
        return nil
    end
    rule.life = math.floor(rule.lateness / 2) -- the other half of the lateness is for the way to the bank
    rule.spacing = math.ceil((rule.per + rule.lateness) / rule.permits)
    if admit[algorithm].spacing then
        rule.spacing = admit[algorithm].spacing(rule)
    end
    return rule
end

-- Whether the count under one rule can be used under the other rule without a change.
local function same_shape(a, b)
    return a.algorithm == b.algorithm and a.per == b.per and a.lateness == b.lateness
        and a.segments == b.segments and a.zone == b.zone
end

-- Whether a text comes before another one, byte by byte, as with collation "C" in Postgres. `<` compares by the locale of Redis's
-- process, and then Redis and the ledger may disagree which rule is stricter.
local function comes_before(a, b)
    for i = 1, math.min(#a, #b) do
        local x, y = string.byte(a, i), string.byte(b, i)
        if x ~= y then
            return x < y
        end
    end
    return #a < #b
end

-- The rule with the lower rate is stricter. Of two equal rates, the rule that allows fewer permits at once is
-- stricter. The order is total, so that all nodes agree.
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
    return comes_before(a.text, b.text)
end

-- Whether the old rule keeps the proposed rule out: the old rule is stricter, and nodes still ask under it. A text that
-- is no rule (nil) keeps nothing out.
local function overrules(old, seen, proposed, now)
    if not old then
        return false
    end
    return is_stricter(old, proposed) and seen > now - SEEN_FOR and seen < now + SEEN_FOR
end

-- The ordinal of a permit of an algorithm without windows or slots. Together with the moment at which the permit
-- opens, it names the permit uniquely.
local function ordinal(issued)
    return issued % 2147483647 + 1
end

-- Of a limit that frees many permits at one moment, a take opens one group after the other. If all opened at once, a node
-- could not begin all requests before the permits close, and the rest would lapse. Groups come at twice the
-- limit's rate, so a burst takes at most half of `per`.
local GROUPS = 1000 -- us from one group to the next
local FURTHEST_GROUP = 1000000 -- us; a newest group further ahead comes from a clock that was wrong

-- The first moment from `at` on at which a permit opens in its group. `state` has the moment of the newest group (last)
-- and, once a permit of this call is in it, how many are (grouped).
local function in_group(rule, state, at)
    if not rule.in_groups or at >= state.last + GROUPS or at < state.last - FURTHEST_GROUP then
        return at
    end
    local has_room = state.grouped and state.grouped < math.ceil(2 * GROUPS / rule.spacing)
    return has_room and at <= state.last and state.last or state.last + GROUPS
end

local function join_group(state, at)
    state.grouped = at == state.last and (state.grouped or 0) + 1 or 1
    state.last = math.max(state.last, at)
end

-- The id of this server's memory: the process and its replication id. A master that became a replica and then a
-- master again is the same process, but it has the memory of the other master. Each promotion begins another
-- replication id.
local function server_id()
    local process = string.match(redis.call("INFO", "server"), "run_id:(%w+)") or error("INFO server names no run_id")
    return process .. (string.match(redis.call("INFO", "replication"), "master_replid:(%w+)") or "")
end

-- The longest time for which a permit counts, in us: 31 days, half of that as lateness, and one segment of the same length
-- (`Rule::memory`).
local LONGEST_MEMORY = 93 * 86400000000

-- By how much Redis's clock was set forward in total, as the key `clock` says it. So much that times before it would be
-- negative stands there only if the clock began near 1970, or if somebody wrote it. Then the script deletes it, and each limit
-- that counted by it is restored from the ledger: see `moved` in `enter`.
local function steps_of(clock, kept, now)
    local steps = natural(kept) or 0
    if steps > 0 and steps > now - LONGEST_MEMORY then
        redis.call("HDEL", clock, "steps")
        return 0
    end
    return steps
end

-- Finds the effective rule of a limit, and the count under it.
-- limit: {key, log, proposed (rule as JSON), ahead, edges}; gains rule, generation, rest_until, state, offset.
-- steps: by how much Redis's clock was set forward in total. Algorithms with `forgets`, whose counts become too
-- old, count by a clock without those steps: `offset` behind Redis's clock.
-- reply: true | false if Redis has no usable count; then a node restores it from the ledger
local function enter(limit, now, tolerance, steps)
    local proposed = read_rule(limit.proposed)
    local kept = redis.call("HMGET", limit.key, "rule", "seen", "generation", "server", "edges", "steps", "rest_until")
    local generation = natural(kept[3])
    if not kept[1] or not generation then
        return false
    end
    local rule, seen, edges = proposed, natural(kept[2]) or 0, limit.edges
    local forgets = admit[rule.algorithm].forgets
    local moved = steps - (natural(kept[6]) or 0)
    if moved < 0 and forgets then
        return false -- the key with the steps of the clock was lost
    elseif moved ~= 0 then
        redis.call("HSET", limit.key, "steps", whole(steps))
    end
    limit.offset = forgets and steps or 0
    if kept[1] ~= limit.proposed then
        local old = read_rule(kept[1])
        if not old then
            return false
        elseif overrules(old, seen, proposed, now) then
            rule = old
            edges = kept[5] or ""
            limit.offset = admit[rule.algorithm].forgets and steps or 0
        elseif same_shape(old, proposed) and admit[rule.algorithm].adapt then
            redis.call("HSET", limit.key, "rule", limit.proposed, "seen", whole(now), "edges", limit.edges)
            admit[rule.algorithm].adapt(limit.key, old, proposed, now - limit.offset)
        else
            -- Permits of fixed windows that are not claimed yet must become void. Of paced limits, the last slot says
            -- too little about the slots before it.
            return false
        end
    elseif seen < now - 1000000 or seen > now then
        redis.call("HSET", limit.key, "seen", whole(now), "edges", limit.edges)
    end
    if kept[4] ~= server_id() then
        return false
    end
    limit.rule = rule
    limit.rest_until = natural(kept[7]) or 0
    limit.generation = whole(generation)
    rule.edges = edges
    limit.state = admit[rule.algorithm].load(limit, rule, now - limit.offset, tolerance + limit.ahead + LONGEST_LEAD_TIME)
    return limit.state ~= nil
end

-- The first permit of a limit from `at` on, by Redis's clock: when it opens and closes.
local function next_of(limit, at)
    local opens, closes = admit[limit.rule.algorithm].next(limit.rule, limit.state, at - limit.offset)
    return opens + limit.offset, closes + limit.offset
end

-- Spends the first permit of a limit from `at` on. reply: its window, slot or moment by Redis's clock, and its
-- ordinal
local function spend_of(limit, at)
    local window, nth = admit[limit.rule.algorithm].spend(limit.rule, limit.state, at - limit.offset)
    return window + limit.offset, nth
end

local function left_of(limit, now)
    return admit[limit.rule.algorithm].left(limit.rule, limit.state, now - limit.offset)
end
