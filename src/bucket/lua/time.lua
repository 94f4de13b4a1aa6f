-- time: reads Redis's clock.
-- KEYS any key; in a cluster it chooses the master
-- reply: 1, now in us
return {1, whole(now_us())}
