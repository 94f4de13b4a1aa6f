-- What every verb shares: reply codes, spans of time in us, the clock, and whole numbers.
local GRANTED, DENIED, EMPTY, FORGOT = 1, 2, 3, 4
local IN_LINE = 9000000000000000 -- the score of an id in line; an id just taken has its time instead
local TAKEN_FOR = 2000000        -- an id that was taken is not put in line again: its claim is under way
local LIFETIME = 10000000        -- no permit is good for longer
local ASKED_AHEAD = 100000       -- a node may ask this much ahead because its claims are slow
local FUTURE = 10000000          -- what was counted further ahead was counted by a clock that was wrong
local admit = {}

local function now_us()
    local t = redis.call("TIME")
    return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- Lua's own conversion drops digits from microseconds.
local function whole(number)
    return string.format("%.0f", number)
end
