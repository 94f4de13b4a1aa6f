-- token_bucket: at most burst + permits in any span of `per`: a bucket of `burst` tokens that gains one
-- every (per + lateness) / permits. Kept as the time at which it will be full again, `full` (the
-- "theoretical arrival time" of the generic cell rate algorithm, ITU-T I.371), and `issued`.
admit.token_bucket = {forgets = true}
local token_bucket = admit.token_bucket

function token_bucket.at_once(rule)
    return rule.burst
end

function token_bucket.rest(rule)
    return rule.per + rule.lateness
end

-- What is saved up beyond `burst` is lost.
function token_bucket.at_a_visit(rule, ahead)
    return math.max(1, math.min(math.floor(rule.burst / 2), rule.permits), math.floor(ahead / 2 / rule.spacing))
end

function token_bucket.load(limit, rule, now, tolerance)
    local kept = redis.call("HMGET", limit.key, "full", "issued", "last")
    local full, issued, last = tonumber(kept[1]), tonumber(kept[2]), tonumber(kept[3])
    if not full or not issued or not last or last > now + tolerance + FUTURE then
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

-- Other numbers: as many tokens are there as before, where they fit; a larger bucket fills by and by.
function token_bucket.adapt(key, old, new, now)
    local full = tonumber(redis.call("HGET", key, "full"))
    if full then
        local there = old.burst - math.max(0, full - now) / old.spacing
        redis.call("HSET", key, "full", whole(now + math.ceil((new.burst - math.min(there, new.burst)) * new.spacing)))
    end
end

-- Tokens that were spent are missing, even below nothing; but no span is longer than `per`.
function token_bucket.recall(limit, rule, now, told)
    local full, last = 0, 0
    for _, spent in ipairs(told.history) do
        full = math.max(full, spent.at) + spent.count * rule.spacing
        last = math.max(last, spent.at)
    end
    full = math.min(full, math.max(now, last) + (rule.burst + rule.permits) * rule.spacing)
    redis.call("HSET", limit.key, "full", whole(full), "issued", "0", "last", whole(last))
end
