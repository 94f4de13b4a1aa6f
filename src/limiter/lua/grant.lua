-- grant: grants permits of several limits together, each at the first moment at which every limit has one.
-- us for which one node alone restores a count (restore.lua), if it says so meanwhile (still.lua)
local RESTORING_FOR, LONGEST_RESTORING = 300000, 10000000
local RARE = 500000 -- us; of permits this far apart, a node must not miss one because it asked early

-- Reads the limits of the call: from `first_key` on two KEYS each, and from `first_arg` on three ARGV each: rule,
-- ahead, edges. `clock` is the key with the steps of Redis's clock.
-- reply: limits | nil, the limit that Redis forgot, its number
local function enter_all(first_key, first_arg, clock, now, tolerance)
    local limits = {}
    local kept = redis.call("HMGET", clock, "at", "steps")
    local stepped, steps = natural(kept[1]), steps_of(clock, kept[2], now)
    if stepped and stepped > now then
        -- The clock was set back once more, and no node saw it.
        stepped = now
        redis.call("HSET", clock, "at", whole(now))
    end
    for i = 1, (#KEYS - first_key + 1) / 2 do
        local key, arg = first_key + (i - 1) * 2, first_arg + (i - 1) * 3
        local limit = {key = KEYS[key], log = KEYS[key + 1], proposed = ARGV[arg], ahead = tonumber(ARGV[arg + 1]), edges = ARGV[arg + 2]}
        if not enter(limit, now, tolerance, steps) then
            return nil, limit, i
        end
        -- After a step, permits of the old clock must close before the limit grants others.
        limit.quiet = stepped and stepped + admit[limit.rule.algorithm].rest(limit.rule) + limit.ahead + LONGEST_LEAD_TIME or 0
        -- A time further ahead than any rest was written before the clock was set back, or by somebody else. `ahead` is at most
        -- half of `per`, and other nodes may have another one. The key gets the nearer time, because this bound moves with the
        -- clock.
        local longest, longest_ahead = 2 * LIFETIME + LONGEST_LEAD_TIME, math.floor(limit.rule.per / 2)
        if limit.rest_until > now + longest + longest_ahead then
            limit.rest_until = now + longest + math.min(limit.ahead, longest_ahead)
            redis.call("HSET", limit.key, "rest_until", whole(limit.rest_until))
        end
        limit.quiet = math.max(limit.quiet, limit.rest_until)
        limits[i] = limit
    end
    return limits
end

-- The reply when Redis forgot a limit. It lets one node at a time restore the count from the ledger. While nodes ask
-- under a stricter rule, a node with a looser rule may not restore it.
local function forgot(limit, nth, now)
    local kept = redis.call("HMGET", limit.key, "telling", "generation", "rule", "seen", "telling_for", "heard")
    if overrules(kept[3] and read_rule(kept[3]), natural(kept[4]) or 0, read_rule(limit.proposed), now) then
        return {RESTORING, now, FOR_THE_STRICTER, nth}
    end
    local telling = natural(kept[1])
    local alone = math.min(math.max(natural(kept[5]) or 0, RESTORING_FOR), LONGEST_RESTORING)
    local heard = math.max(telling or 0, natural(kept[6]) or 0)
    if telling and telling > now - alone and telling <= now and heard > now - SILENT_FOR then
        return {RESTORING, now, WHILE_RESTORING, nth}
    end
    redis.call("HSET", limit.key, "telling", whole(now))
    local window, over = 0, 0
    local rule = read_rule(limit.proposed)
    rule.edges = limit.edges
    if rule.algorithm == "fixed_window" then
        window, over = window_at(rule, now)
    end
    return {FORGOT, now, nth, natural(kept[2]) or 0, whole(window or 0), whole(over or 0), server_id()}
end

-- The first moment from `at` on at which every limit has a permit.
-- reply: the moment, when the common span of the permits opens and closes (nil if there is none within 20 rounds),
-- and the number of the limit that caused the longest wait
local function first_common(limits, at)
    local blocker, furthest = 1, 0
    for _ = 1, 20 do
        local opens, closes, agreed = 0, math.huge, true
        for i, limit in ipairs(limits) do
            local from = math.max(at, limit.quiet)
            local o, c = next_of(limit, from)
            local further = math.max(o, from) - at
            if further > 0 then
                at, agreed = at + further, false
            end
            if further > furthest then
                blocker, furthest = i, further
            end
            opens, closes = math.max(opens, o), math.min(closes, c)
        end
        if agreed then
            return at, opens, closes, blocker
        end
    end
    return at, nil, nil, blocker
end

-- Spends up to `want` permits in memory; `save_all` writes them to the keys.
-- reply: for each permit a flat list {opens, closes, then window and ordinal for each limit}. If the limits have no
-- further permit up to `latest`: also when they have one, and the number of the limit that causes the wait
local function grant(limits, want, from, latest)
    local granted = {}
    for _, limit in ipairs(limits) do
        -- Whoever wants all permits at once gets them at once.
        limit.rule.in_groups = latest > from
    end
    for nth = 1, want do
        local at, opens, closes, blocker = first_common(limits, from)
        if not opens or at > latest then
            return granted, at, blocker
        end
        local permit = {whole(opens), whole(closes)}
        for _, limit in ipairs(limits) do
            local window, ordinal = spend_of(limit, at)
            permit[#permit + 1] = whole(window)
            permit[#permit + 1] = whole(ordinal)
        end
        granted[nth] = permit
    end
    return granted
end

local function save_all(limits, now)
    for _, limit in ipairs(limits) do
        admit[limit.rule.algorithm].save(limit, limit.rule, limit.state, now - limit.offset)
    end
end

-- How long a node stays away that must wait for `at`. Each node that waits for a limit gets its own turn, one turn
-- after the other, so that no node asks in vain. A node may die and leave its turn unused. So two turns overlap,
-- unless a turn has only one permit.
-- `ahead`: how long before it opens a permit of all limits may be granted. It is the smallest `ahead` of the limits.
-- A larger one makes the node ask too early and be denied again and again.
-- `got`: how many permits the call granted.
-- `looks`: whether the call only looks at permits. Then it says how long to wait, and reserves no turn.
local function come_back(limit, at, want, now, lead_time, ahead, got, looks)
    local rule = limit.rule
    local share = math.min(want, admit[rule.algorithm].at_a_visit(rule, ahead))
    -- A permit opens at least `lead_time` after the call. For a single permit the node comes early, so
    -- that it does not miss the permit. For several it comes when some of them have become available.
    local lead = math.floor(ahead * (share > 1 and 0.5 or 0.75)) + lead_time
    -- A time further ahead than two spans of the rule comes from a clock that was wrong. It may soon be corrected.
    at = math.min(at, now + 2 * (rule.per + rule.lateness) + limit.ahead)
    if share == 1 and rule.spacing >= RARE and at - now < RARE / 2 then
        -- The node came early for its turn, because its claims have become quicker. It keeps its turn.
        return math.max(at - lead - now, 1000)
    end
    local step = share * rule.spacing
    if share > 1 then
        if got > 0 and admit[rule.algorithm].in_lumps and left_of(limit, now) > 0 and at - now < step / 8 then
            -- The limit has more permits, and opens them in groups, much sooner than it frees permits. Turns as far apart as
            -- freed permits would let the node wait for nothing.
            return math.max(at - lead - now, 1000)
        end
        step = step / 2
        if admit[rule.algorithm].in_lumps then
            -- Many permits open at one moment. A node that cannot use all of them leaves the rest to the next turn.
            -- Then that rest opens as late in every later span, too.
            step = math.min(step, rule.per / 20)
        end
    end
    -- The field `turn` is the moment at which permits open, the same for all nodes. Each node asks earlier, by its
    -- own lead.
    local opening = natural(redis.call("HGET", limit.key, "turn")) or 0
    if opening < at or opening > at + FURTHEST_RESERVATION + 2 * step then
        opening = at
    end
    local mine = math.min(opening, at + FURTHEST_RESERVATION)
    if admit[rule.algorithm].align then
        mine = math.max(at, admit[rule.algorithm].align(rule, mine - limit.offset) + limit.offset)
    end
    local wait = math.max(mine - lead - now, 1000)
    -- A node that asks again before its turn gets no turn yet. If it did, it would then get the next turn and miss
    -- this one.
    local stays = rule.text == limit.proposed and STAYS_AWAY or STAYS_AWAY_OVERRULED
    if not looks and opening < at + FURTHEST_RESERVATION and wait <= stays then
        redis.call("HSET", limit.key, "turn", whole(opening + step))
    end
    return wait
end

-- The part `effective` of a reply: for each limit its generation, and the effective rule, or "" if it is the proposed
-- rule.
local function effective_rules(limits)
    local all = {}
    for _, limit in ipairs(limits) do
        all[#all + 1] = limit.generation
        all[#all + 1] = limit.rule.text ~= limit.proposed and limit.rule.text or ""
    end
    return all
end
