-- paced: at most `permits` in any span of `per`, evenly spaced: one permit in each slot of
-- (per + lateness) / permits. The slots lie on a grid that begins in 1970, so that all nodes wait for the same moments.
-- Keeps slot, the last one granted, and owed, the one up to which the ledger's word fills them. A first byte is at most `lateness` late, so between the first and
-- the last of permits + 1 of them lies more than `per`.
admit.paced = {forgets = true}
local paced = admit.paced

function paced.at_once()
    return 1
end

function paced.rest(rule)
    return rule.lateness
end

-- How many permits one who comes half of `ahead` before the first can have: slots are not saved up.
function paced.at_a_visit(rule, ahead)
    return math.max(1, math.floor(ahead / 2 / rule.spacing))
end

function paced.load(limit, rule, now, tolerance)
    local kept = redis.call("HMGET", limit.key, "slot", "owed")
    local slot, owed = tonumber(kept[1]), tonumber(kept[2]) or 0
    if not slot or slot > math.max(now + tolerance + rule.spacing, owed) then
        return nil -- never seen, or Redis's clock went back
    end
    return {slot = slot}
end

-- The first slot that can still be used at `at`: when it opens and closes.
function paced.next(rule, state, at)
    local slot = at - at % rule.spacing
    if slot + rule.life / 2 < at then
        slot = slot + rule.spacing
    end
    local after = state.slot + rule.spacing
    if slot < after then
        slot = after + (rule.spacing - after % rule.spacing) % rule.spacing
    end
    return slot, slot + rule.life
end

function paced.spend(rule, state, at)
    state.slot = paced.next(rule, state, at)
    return state.slot, 1
end

function paced.left(rule, state, now)
    return paced.next(rule, state, now) <= now and 1 or 0
end

function paced.save(limit, rule, state)
    redis.call("HSET", limit.key, "slot", whole(state.slot))
end

-- When to come again for a permit that may be asked for at `at`: a slot is of use for a moment only.
function paced.turn(rule, at)
    return at + (rule.spacing - at % rule.spacing) % rule.spacing
end

-- Whatever the ledger has seen counts as if it had been paced.
function paced.recall(limit, rule, now, told)
    local free, span = 0, rule.per + rule.lateness
    for _, spent in ipairs(told.history) do
        if spent.at > now - span - rule.lateness then -- the next slot may have opened already
            free = math.max(free, spent.at) + spent.count * rule.spacing
        end
    end
    local slot = math.max(0, math.min(free - rule.spacing, now + told.tolerance + FUTURE + span))
    redis.call("HSET", limit.key, "owed", whole(slot))
    local kept = tonumber(redis.call("HGET", limit.key, "slot"))
    if kept and kept <= now + told.tolerance + rule.spacing then
        slot = math.max(slot, kept)
    end
    redis.call("HSET", limit.key, "slot", whole(slot))
end

-- paced_strict: the same with slots further apart, as read_rule has it. Of two rules of one rate it is the stricter.
admit.paced_strict = {}
for name, verb in pairs(paced) do
    admit.paced_strict[name] = verb
end

function admit.paced_strict.at_once()
    return 0
end
