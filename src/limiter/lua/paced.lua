-- paced: at most `permits` in any span of `per`, evenly spaced: one permit in each slot of (per + lateness) /
-- permits. The slots lie on a grid that begins in 1970, so that all nodes wait for the same moments. Keeps slot, the
-- last granted slot, and owed, the last slot that the ledger's count fills. A first byte is at most `lateness` late.
-- So the first and the last of permits + 1 first bytes are more than `per` apart.
admit.paced = {forgets = true, has_slots = true}
local paced = admit.paced

function paced.at_once()
    return 1
end

function paced.rest(rule)
    return rule.lateness
end

-- How many permits a node can get that asks half of `ahead` before the first one opens. Unused slots are lost.
function paced.at_a_visit(rule, ahead)
    return math.max(1, math.floor(ahead / 2 / rule.spacing))
end

function paced.load(limit, rule, now, tolerance)
    local kept = redis.call("HMGET", limit.key, "slot", "owed")
    local slot, owed = natural(kept[1]), natural(kept[2]) or 0
    -- A slot that the ledger fills may lie ahead, but not further than `recall` puts it.
    owed = math.min(owed, now + tolerance + FUTURE + rule.per + rule.lateness)
    if not slot or slot > math.max(now + tolerance + rule.spacing, owed) then
        return nil -- no slot was granted yet, or Redis's clock was set back
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

-- Moves a turn to the beginning of the next slot, because a slot can be used for a moment only.
function paced.align(rule, at)
    return at + (rule.spacing - at % rule.spacing) % rule.spacing
end

-- Takes over the ledger's count. The permits in it count as if they had been paced. Permits of a higher rate would fill slots for long.
-- But a slot that opens `span` after the last of them shares no span with any of them.
function paced.recall(limit, rule, now, ledger)
    local free, last, span = 0, 0, rule.per + rule.lateness
    for _, spent in ipairs(ledger.history) do
        if spent.at > now - span - rule.lateness then -- the next slot may have opened already
            last = math.max(last, spent.at)
            free = math.max(free, spent.at) + spent.count * rule.spacing
        end
    end
    local slot = math.max(0, math.min(free, last + span) - rule.spacing)
    slot = math.min(slot, now + ledger.tolerance + FUTURE + span)
    redis.call("HSET", limit.key, "owed", whole(slot))
    local kept = natural(redis.call("HGET", limit.key, "slot"))
    if kept and kept <= now + ledger.tolerance + rule.spacing then
        slot = math.max(slot, kept)
    end
    redis.call("HSET", limit.key, "slot", whole(slot))
end

-- paced_strict: as paced, with slots further apart. Of two rules with the same rate it is the stricter.
admit.paced_strict = {}
for name, verb in pairs(paced) do
    admit.paced_strict[name] = verb
end

-- Each first byte may be up to `lateness` late. So any two of them are still per / permits apart.
function admit.paced_strict.spacing(rule)
    return math.ceil(rule.per / rule.permits) + rule.lateness
end

function admit.paced_strict.at_once()
    return 0
end
