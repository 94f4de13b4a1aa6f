-- grant: permits of several limits at once, each at the first moment that suits them all.
local RESTORING_FOR = 300000 -- us in which one node alone asks the ledger
local RARE = 500000 -- us between permits that nobody should miss by coming early

-- Reads what the caller says of its limits: KEYS from `first_key` on, two each; ARGV from `first_arg` on,
-- three each: rule, ahead, edges. `clock` is the key that remembers when Redis's clock was seen to step.
-- reply: limits | nil, which of them Redis forgot
local function enter_all(first_key, first_arg, clock, now, tolerance)
    local limits = {}
    local kept = redis.call("HMGET", clock, "at", "steps")
    local stepped, steps = tonumber(kept[1]), tonumber(kept[2]) or 0
    if stepped and stepped > now then
        -- It went back once more, and nobody was there to see it.
        stepped = now
        redis.call("HSET", clock, "at", whole(now))
    end
    for i = 1, (#KEYS - first_key + 1) / 2 do
        local key, arg = first_key + (i - 1) * 2, first_arg + (i - 1) * 3
        local limit = {key = KEYS[key], log = KEYS[key + 1], proposed = ARGV[arg], ahead = tonumber(ARGV[arg + 1]), edges = ARGV[arg + 2]}
        if not enter(limit, now, tolerance, steps) then
            return nil, limit, i
        end
        -- After a step, permits that were granted by the old clock must be over before there are others.
        limit.quiet = stepped and stepped + admit[limit.rule.algorithm].rest(limit.rule) + limit.ahead + ASKED_AHEAD or 0
        -- What lies further ahead than any rest was written before the clock went back.
        limit.quiet = math.max(limit.quiet, math.min(limit.rest_until, now + 2 * LIFETIME + limit.ahead + ASKED_AHEAD))
        limits[i] = limit
    end
    return limits
end

-- The reply when Redis forgot a limit. One node at a time is sent to the ledger, and none that would bring back a
-- looser rule while nodes ask under a stricter one.
local function forgot(limit, nth, now)
    local kept = redis.call("HMGET", limit.key, "telling", "generation", "rule", "seen")
    if kept[3] and overrules(read_rule(kept[3]), tonumber(kept[4]) or 0, read_rule(limit.proposed), now) then
        return {RESTORING, now, FOR_THE_STRICTER, nth}
    end
    local telling = tonumber(kept[1])
    if telling and telling > now - RESTORING_FOR and telling <= now then
        return {RESTORING, now, WHILE_RESTORING, nth}
    end
    redis.call("HSET", limit.key, "telling", whole(now))
    local window, over = 0, 0
    local rule = read_rule(limit.proposed)
    rule.edges = limit.edges
    if rule.algorithm == "fixed_window" then
        window, over = window_at(rule, now)
    end
    return {FORGOT, now, nth, tonumber(kept[2]) or 0, whole(window or 0), whole(over or 0), server_id()}
end

-- The first moment from `at` on at which every limit has a permit.
-- reply: the moment, when the permits' common span opens and closes (nil if none was found), who made it wait longest
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

-- Spends up to `want` permits, in memory; `save_all` keeps it.
-- reply: for each permit a flat list {opens, closes, then window and ordinal for each limit};
-- and if the limits allow no more of them before `latest`: when they do, and which makes one wait
local function grant(limits, want, from, latest)
    local granted = {}
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

-- How long one who must wait for `at` shall stay away. Whoever waits for the same limit gets a turn of
-- their own, one behind the other, so that nobody asks in vain; of turns that could fall idle because
-- somebody died, two overlap, unless there is but one permit.
-- `ahead`: how much sooner than it opens a permit of all its limits may be asked for. It is that of the one
-- that looks least ahead: whoever came by another's would come too early, and be sent away for ever.
local function come_back(limit, at, want, now, haste, ahead)
    local rule = limit.rule
    local share = math.min(want, admit[rule.algorithm].at_a_visit(rule, ahead))
    -- What is asked for opens no sooner than `haste` from then. For a single permit one comes early, so as
    -- not to miss it; for several when some have gathered.
    local lead = math.floor(ahead * (share > 1 and 0.5 or 0.75)) + haste
    -- What lies further ahead than two of its spans was counted by a clock that was wrong, and may soon be right.
    at = math.min(at, now + 2 * (rule.per + rule.lateness) + limit.ahead)
    if share == 1 and rule.spacing >= RARE and at - now < RARE / 2 then
        -- It came on its turn, but early: its claims have become quicker. It keeps it.
        return math.max(at - lead - now, 1000)
    end
    local step = share * rule.spacing
    if share > 1 then
        step = step / 2
        if admit[rule.algorithm].in_lumps then
            -- Many permits open in one moment. A node that cannot use all of them leaves the rest to the next turn, and the
            -- rest opens as late in every span to come.
            step = math.min(step, rule.per / 20)
        end
    end
    -- Kept as when the permits open, which is the same for all; each comes earlier by a lead of its own.
    local turn = tonumber(redis.call("HGET", limit.key, "turn")) or 0
    if turn < at or turn > at + LONGEST_TURN + 2 * step then
        turn = at
    end
    local mine = math.min(turn, at + LONGEST_TURN)
    if admit[rule.algorithm].turn then
        mine = math.max(at, admit[rule.algorithm].turn(rule, mine - limit.offset) + limit.offset)
    end
    local wait = math.max(mine - lead - now, 1000)
    -- Who will ask again before its turn gets none yet: it would take the next one then, and miss this.
    local stays = rule.text == limit.proposed and STAYS_AWAY or STAYS_AWAY_OVERRULED
    if turn < at + LONGEST_TURN and wait <= stays then
        redis.call("HSET", limit.key, "turn", whole(turn + step))
    end
    return wait
end

-- Under which generation each permit was granted, and the rule in force where it is not the one asked for.
local function standing(limits)
    local all = {}
    for _, limit in ipairs(limits) do
        all[#all + 1] = limit.generation
        all[#all + 1] = limit.rule.text ~= limit.proposed and limit.rule.text or ""
    end
    return all
end
