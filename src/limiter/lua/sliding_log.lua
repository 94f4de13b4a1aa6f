-- sliding_log: at most `permits` in any span of `per`, bursts allowed. It keeps the moments at which the permits of
-- the last per + lateness opened. The log, a sorted set, has one entry for each group of permits that open together: the member is the running
-- total of permits after the group, the score is the moment it opened. `total` is the newest total. `gone` is the
-- newest total that is too old to count.
admit.sliding_log = {forgets = true, in_lumps = true}
local sliding_log = admit.sliding_log

function sliding_log.at_once(rule)
    return rule.permits
end

function sliding_log.rest(rule)
    return rule.lateness
end

function sliding_log.at_a_visit(rule)
    return rule.permits
end

-- A total as a member of the log. Redis orders entries of one moment as text, so all members are equally long.
local function padded(total)
    return string.format("%016.0f", total)
end

-- While a permit counts, the newest entry of the log has the newest total. If not, the log was lost without the hash, or forged:
-- then each permit since the last save would count as new.
function sliding_log.load(limit, rule, now, tolerance)
    local kept = redis.call("HMGET", limit.key, "total", "gone", "last")
    local total, gone, last = natural(kept[1]), natural(kept[2]), natural(kept[3])
    if not total or not gone or not last or gone > total or last > now + tolerance + FUTURE then
        return nil
    end
    if total > gone and redis.call("ZREVRANGEBYSCORE", limit.log, "+inf", "-inf", "LIMIT", 0, 1)[1] ~= padded(total) then
        return nil
    end
    return {log = limit.log, total = total, gone = gone, last = last, fresh = {}}
end

-- The running total of the newest entry at or before a moment.
local function total_at(state, at)
    local entry = redis.call("ZREVRANGEBYSCORE", state.log, whole(at), "-inf", "LIMIT", 0, 1)[1]
    return math.max(state.gone, tonumber(entry) or 0)
end

-- The moment of the first entry with a total above `least`, which lies after `from` and not after `to`. It halves the time between
-- the two, so it makes few calls, however many entries there are.
local function moment_above(state, least, from, to)
    while to - from > 1 do
        local middle = math.floor((from + to) / 2)
        if total_at(state, middle) > least then
            to = middle
        else
            from = middle
        end
    end
    return to
end

-- So many entries one call reads. After a reload to a much lower number, the entry in question lies far behind the first one.
local MOST_READ = 100

function sliding_log.next(rule, state, at)
    local span = rule.per + rule.lateness
    local out = total_at(state, at - span)
    local excess = state.total - out - rule.permits
    local least = out + excess
    if excess < 0 then
        at = in_group(rule, state, at)
        return at, at + rule.life
    end
    -- The permit opens when enough of the oldest entries are too old to count.
    local entries = redis.call("ZRANGEBYSCORE", state.log, "(" .. whole(at - span), "+inf", "WITHSCORES", "LIMIT", 0, math.min(excess + 1, MOST_READ))
    local opens
    for i = 1, #entries, 2 do
        if (tonumber(entries[i]) or 0) > least then
            opens = tonumber(entries[i + 1])
            break
        end
    end
    if not opens and #entries == 2 * MOST_READ and total_at(state, state.last) > least then
        opens = moment_above(state, least, tonumber(entries[#entries]) - 1, state.last)
    end
    if opens then
        at = in_group(rule, state, opens + span)
        return at, at + rule.life
    end
    -- The rest of the entries was granted in this call, and is not in the log yet.
    for _, group in ipairs(state.fresh) do
        if group.total > least then
            at = in_group(rule, state, group.at + span)
            return at, at + rule.life
        end
    end
    at = state.last + span
    return at, at + rule.life
end

-- reply: the moment it opens, and which permit of this generation it is
function sliding_log.spend(rule, state, at)
    state.total = state.total + 1
    join_group(state, at)
    local newest = state.fresh[#state.fresh]
    if newest and newest.at == state.last then
        newest.total = state.total
    else
        state.fresh[#state.fresh + 1] = {at = state.last, total = state.total}
    end
    return at, ordinal(state.total)
end

function sliding_log.left(rule, state, now)
    return math.max(0, rule.permits - (state.total - total_at(state, now - rule.per - rule.lateness)))
end

function sliding_log.save(limit, rule, state, now)
    for _, group in ipairs(state.fresh) do
        redis.call("ZADD", limit.log, whole(group.at), padded(group.total))
    end
    state.gone = total_at(state, now - rule.per - rule.lateness - FUTURE)
    redis.call("ZREMRANGEBYSCORE", limit.log, "-inf", whole(now - rule.per - rule.lateness - FUTURE))
    redis.call("HSET", limit.key, "total", whole(state.total), "gone", whole(state.gone), "last", whole(state.last))
end

-- The rule has other numbers: the count stays as it is.
function sliding_log.adapt()
end

function sliding_log.recall(limit, rule, now, ledger)
    redis.call("DEL", limit.log)
    local total, last = 0, 0
    for _, spent in ipairs(ledger.history) do
        total, last = total + spent.count, math.max(last, spent.at)
        redis.call("ZADD", limit.log, whole(last), padded(total))
    end
    redis.call("HSET", limit.key, "total", whole(total), "gone", "0", "last", whole(last))
end
