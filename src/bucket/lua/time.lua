-- time: what Redis's clock shows.
-- KEYS any key of the server that is asked
-- reply: 1, now in us
return {1, whole(now_us())}
