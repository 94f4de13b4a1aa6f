-- end_pauses: ends the pauses whose time is over. The claim looks at their ends by itself; this statement writes down who
-- ended them, and when nobody does. A row that somebody has locked waits for the next round, which the other parts of recovery must not do.
-- :witnessed_us   the time as in lapse.sql: a clock that was set forward ends no pause early
with over_of_channels as (
    select c.channel from refundd.channels c where c.paused_at is not null and c.pause_until <= least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond')
       for no key update skip locked
), over_of_all as (
    select s.channel, s.source from refundd.suspensions s where s.ended_at is null and s.until <= least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond')
       for no key update skip locked
), of_channels as (
    update refundd.channels c
       set paused_at = null, pause_until = null, pause_reason = null, paused_by = null,
           resumed_at = now(), resumed_by = 'refundd', resume_reason = 'its time was over'
      from over_of_channels o where c.channel = o.channel
)
update refundd.suspensions s
   set ended_at = now(), ended_by = 'refundd', end_reason = 'its time was over'
  from over_of_all o where s.channel = o.channel and s.source = o.source
