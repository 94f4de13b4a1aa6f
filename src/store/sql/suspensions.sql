-- suspensions: what suspends and slows channels now.
-- :channel        only this channel and everything; null for all channels
-- :witnessed_us   the time as in gate.sql. If a pause were over here and not there, a node would ask for permits in vain; so this
--                 statement does not read the view refundd.suspended, which goes by now() alone
select s.channel, s.source, left(s.reason, 2000) as reason, left(s.who, 500) as who, (extract(epoch from s.since) * 1000000)::bigint as since_us,
       (extract(epoch from s.until) * 1000000)::bigint as until_us,
       (extract(epoch from s.until - least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond')) * 1000000)::bigint as left_us,
       (extract(epoch from s.probe_at - now()) * 1000000)::bigint as probe_us, null::integer as slowed
  from (select c.channel, 'person'::text as source, c.paused_at as since, c.pause_until as until, c.pause_reason as reason, c.paused_by as who,
               null::timestamptz as probe_at
          from refundd.channels c where c.paused_at is not null
         union all
        select o.channel, o.source, o.since, o.until, o.reason, o.who, o.probe_at from refundd.suspensions o where o.ended_at is null) s
 where (s.until is null or s.until > least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond')) and (:channel::text is null or s.channel in (:channel, '*'))
 union all
select c.channel, 'cooling', left(c.cool_reason, 2000), '', null, (extract(epoch from c.cool_until) * 1000000)::bigint,
       (extract(epoch from c.cool_until - now()) * 1000000)::bigint, null, null
  from refundd.channels c
 where c.cool_until is not null and c.cool_until > now() and (:channel::text is null or c.channel = :channel)
 union all
select c.channel, 'slowed', '', '', null, null, null, null,
       refundd.slow_share(c.slow_percent, c.slow_ceiling, c.slow_step_us, c.slow_since)
  from refundd.channels c where c.slow_percent is not null and (:channel::text is null or c.channel = :channel)
 order by 1, 2
