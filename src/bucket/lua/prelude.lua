-- What every verb shares: spans of time in us, the clock, and whole numbers.
-- Reply codes and the times that Rust also needs stand above this line; `script.rs` writes them.
local IN_LINE = 9000000000000000 -- the score of an id in line; an id just taken has its time instead
local TAKEN_FOR = 2000000        -- an id that was taken is not put in line again: its claim is under way
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
