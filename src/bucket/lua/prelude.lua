-- What every verb shares: reply codes, time, and whole numbers.
local GRANTED, DENIED, EMPTY, FORGOT = 1, 2, 3, 4
local IN_LINE = 9000000000000000 -- the score of an id in line; an id just taken has its time instead
local TAKEN_FOR = 2000000        -- us an id that was taken is not put in line again: its claim is under way
local HASTE = 3000               -- us a permit must still live to be worth claiming under
local admit = {}

local function now_us()
    local t = redis.call("TIME")
    return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- Lua's own conversion drops digits from microseconds.
local function whole(number)
    return string.format("%.0f", number)
end
