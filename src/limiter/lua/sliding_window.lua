-- sliding_window: at most `permits` in any span of `per`, with little memory. It counts by segments of (per +
-- lateness) / segments, and a segment that overlaps the span counts whole. So the current segment and the `segments`
-- before it have at most `permits` together. Keeps one field sN for each segment in use, and `issued`, which numbers
-- permits.
admit.sliding_window = {needs = "segments", forgets = true, in_lumps = true}
local sliding_window = admit.sliding_window

local function segment_length(rule)
    return math.ceil((rule.per + rule.lateness) / rule.segments)
end

function sliding_window.spacing(rule)
    return math.ceil(rule.spacing * (rule.segments + 1) / rule.segments)
end

function sliding_window.at_once(rule)
    return rule.permits
end

function sliding_window.rest(rule)
    return rule.lateness
end

function sliding_window.at_a_visit(rule)
    return rule.permits
end

function sliding_window.load(limit, rule, now, tolerance)
    local state = {counts = {}, old = {}, last = 0}
    -- Segments are kept for FUTURE longer: perhaps Redis's clock was set, and the node that sees it will report it.
    local oldest = math.floor((now - FUTURE) / segment_length(rule)) - rule.segments
    local fields = redis.call("HGETALL", limit.key)
    for i = 1, #fields, 2 do
        local segment = tonumber(string.match(fields[i], "^s(%d+)$"))
        if fields[i] == "issued" then
            state.issued = natural(fields[i + 1])
        elseif fields[i] == "last" then
            state.last = natural(fields[i + 1]) or 0
        elseif segment and segment < oldest then
            state.old[#state.old + 1] = fields[i]
        elseif segment then
            state.counts[segment] = natural(fields[i + 1])
            if not state.counts[segment] or segment * segment_length(rule) > now + tolerance + FUTURE then
                return nil
            end
        end
    end
    return state.issued and state or nil
end

-- The count of the segment `first` and of all later ones, also in the future: nodes grant ahead by different spans.
local function counted_from(state, first)
    local sum = 0
    for segment, count in pairs(state.counts) do
        if segment >= first then
            sum = sum + count
        end
    end
    return sum
end

function sliding_window.next(rule, state, at)
    local length = segment_length(rule)
    local segment = math.floor(at / length)
    local first = segment
    while counted_from(state, segment - rule.segments) >= rule.permits do
        segment = segment + 1
    end
    at = in_group(rule, state, segment > first and segment * length or at)
    return at, at + rule.life
end

function sliding_window.spend(rule, state, at)
    local segment = math.floor(at / segment_length(rule))
    state.counts[segment] = (state.counts[segment] or 0) + 1
    state.issued = state.issued + 1
    join_group(state, at)
    state.changed = state.changed or {}
    state.changed[segment] = true
    return at, ordinal(state.issued)
end

function sliding_window.left(rule, state, now)
    return math.max(0, rule.permits - counted_from(state, math.floor(now / segment_length(rule)) - rule.segments))
end

function sliding_window.save(limit, rule, state)
    for segment in pairs(state.changed) do
        redis.call("HSET", limit.key, "s" .. whole(segment), whole(state.counts[segment]))
    end
    for _, field in ipairs(state.old) do
        redis.call("HDEL", limit.key, field)
    end
    redis.call("HSET", limit.key, "issued", whole(state.issued), "last", whole(state.last))
end

-- The rule has other numbers: the count stays as it is.
function sliding_window.adapt()
end

function sliding_window.recall(limit, rule, now, ledger)
    local length, counts = segment_length(rule), {}
    for _, spent in ipairs(ledger.history) do
        local segment = math.floor(spent.at / length)
        counts[segment] = (counts[segment] or 0) + spent.count
    end
    for segment, count in pairs(counts) do
        redis.call("HSET", limit.key, "s" .. whole(segment), whole(count))
    end
    redis.call("HSET", limit.key, "issued", "0")
end
