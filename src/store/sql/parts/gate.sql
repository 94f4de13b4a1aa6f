-- gate: the part that every claim has, for sends and for inquiries. permits.sql or unlimited.sql follows it.
-- :channel, :node
-- :is_send                 false for an inquiry
-- :witnessed_us            Postgres's time as the node's own clock carried it on: a clock that was set forward ends no pause
gate as (
    -- A suspended channel lets no claim through, even if the node does not know yet. The breaker stops sends alone, and
    -- lets the node through that has reserved the probe.
    select (c.paused_at is null or c.pause_until <= least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond')) and (c.cool_until is null or c.cool_until <= now())
           and not exists (
               select from refundd.suspensions s
                where s.channel = any(array[c.channel, '*']) and s.ended_at is null and (s.until is null or s.until > least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond'))
                  and (s.source <> 'breaker'
                       or (:is_send::boolean and not coalesce(s.probe_by = :node and s.probe_until > now(), false)))) as is_open
      from refundd.channels c
     where c.channel = :channel
),
