-- token_bucket: at most burst + permits in any span of `per`. A bucket of `burst` tokens gains one token every (per +
-- lateness) / permits. Keeps `full`, the time at which the bucket will be full again (the "theoretical arrival time"
-- of the generic cell rate algorithm, ITU-T I.371), `issued`, which numbers permits, and `last`, the latest opening.
admit.token_bucket = {needs = "burst", forgets = true}
local token_bucket = admit.token_bucket

function token_bucket.at_once(rule)
    return rule.burst + rule.permits
end

function token_bucket.rest(rule)
    return rule.lateness
end

-- Tokens beyond `burst` are lost, so a node asks before the bucket is full.
function token_bucket.at_a_visit(rule, ahead)
    return math.max(1, math.min(math.floor(rule.burst / 2), rule.permits), math.floor(ahead / 2 / rule.spacing))
end

function token_bucket.load(limit, rule, now, tolerance)
    local kept = redis.call("HMGET", limit.key, "full", "issued", "last")
    local full, issued, last = natural(kept[1]), natural(kept[2]), natural(kept[3])
    local furthest = now + tolerance + FUTURE
    if not full or not issued or not last or last > furthest or full > furthest + (rule.burst + rule.permits) * rule.spacing then
        return nil
    end
    return {full = full, issued = issued, last = last}
end

function token_bucket.next(rule, state, at)
    at = math.max(at, state.full - (rule.burst - 1) * rule.spacing)
    return at, at + rule.life
end

function token_bucket.spend(rule, state, at)
    state.full = math.max(state.full, at) + rule.spacing
    state.last = math.max(state.last, at)
    state.issued = state.issued + 1
    return at, ordinal(state.issued)
end

function token_bucket.left(rule, state, now)
    return math.max(0, math.floor(rule.burst - math.max(0, state.full - now) / rule.spacing))
end

function token_bucket.save(limit, rule, state)
    redis.call("HSET", limit.key, "full", whole(state.full), "issued", whole(state.issued), "last", whole(state.last))
end

-- The rule has other numbers: the bucket keeps its tokens, as many as fit. A larger bucket fills over time.
-- Of the old count and the new one, `adapt` must keep the stricter: permits of the old rule may still be on their way.
function token_bucket.adapt(key, old, new, now)
    local full = natural(redis.call("HGET", key, "full"))
    if full then
        local there = old.burst - math.max(0, full - now) / old.spacing
        redis.call("HSET", key, "full", whole(now + math.ceil((new.burst - math.min(there, new.burst)) * new.spacing)))
    end
end

-- Takes over the ledger's count, which shows only what was spent in the last `per`. Nothing tells how full the bucket was before
-- that, so it counts as empty then. But each permit in the ledger shows that there was a token for it. So after a loss, a
-- bucket of more than `permits` tokens has at most `permits`, and fills up; any other one has what it had. Permits of an older
-- rule may leave a debt. The ledger dates a group of permits at its latest, so `last` may lie up to a second ahead of `now`;
-- `load` must take that for a true count.
local LONGEST_FILLING = 4000000000000000 -- us; 126 years, so that the sum stays a whole number

function token_bucket.recall(limit, rule, now, ledger)
    local filling = math.min(rule.burst * rule.spacing, LONGEST_FILLING)
    local full, last = now - rule.per - rule.lateness + filling, 0
    local most = 0 -- as `full`, if the bucket had been full before
    for _, spent in ipairs(ledger.history) do
        most = math.max(most, spent.at) + spent.count * rule.spacing
        full = math.max(full, spent.at) + spent.count * rule.spacing
        last = math.max(last, spent.at)
    end
    if last > 0 then
        full = math.max(most, math.min(full, last + filling))
    end
    full = math.min(full, math.max(now, last) + filling + rule.permits * rule.spacing)
    redis.call("HSET", limit.key, "full", whole(full), "issued", "0", "last", whole(last))
end
