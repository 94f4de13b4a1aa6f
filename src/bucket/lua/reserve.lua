-- reserve: spends permits of limits of which a node counts its own share. It takes no ids.
-- KEYS clock, then for each limit: its key and its log
-- ARGV want, lead_time_us, tolerance_us, "look" | "spend", within_us, then for each limit: rule, ahead_us, edges
-- within_us: how far ahead the channel's other limits grant permits
-- reply: as of take, with the places of the permits, from 1, instead of ids; "look" spends nothing, and
-- reserves a turn only if it finds no permit
local want, lead_time, tolerance = tonumber(ARGV[1]), math.min(tonumber(ARGV[2]), LONGEST_LEAD_TIME), tonumber(ARGV[3])
local now = now_us()
local limits, lost, nth = enter_all(2, 6, KEYS[1], now, tolerance)
if not limits then
    return forgot(lost, nth, now)
end
local ahead = tonumber(ARGV[5])
for _, limit in ipairs(limits) do
    ahead = math.min(ahead, limit.ahead)
end
local from, wait = now + lead_time, 0
local permits, at, blocker = grant(limits, want, from, from + ahead)
if at then
    -- A look that finds permits may take nothing, for the bucket may be empty. So it reserves no turn.
    wait = come_back(limits[blocker], at, want, now, lead_time, ahead, #permits, ARGV[4] == "look" and #permits > 0)
end
if #permits == 0 then
    return {DENIED, now, 0, 0, wait, blocker, effective_rules(limits)}
end
if ARGV[4] == "spend" then
    save_all(limits, now)
end
local places = {}
for i = 1, #permits do
    places[i] = i
end
return {GRANTED, now, 0, 0, wait, blocker or 1, effective_rules(limits), places, permits}
