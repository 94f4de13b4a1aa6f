-- resume: ends a person's pause of one channel, and answers which pause was there. No row: there is no such channel.
-- :channel, :who, :reason
-- :seen_us   when the pause that may end began, in microseconds since 1970; null for any
with before as (
    -- The lock lets a pause and a resume at one time happen one after the other.
    select c.channel, c.pause_reason as reason, c.paused_by as who, c.pause_until, (extract(epoch from c.paused_at) * 1000000)::bigint as since_us,
           c.paused_at is not null as was_suspended
      from refundd.channels c where c.channel = :channel for no key update
), resumed as (
    update refundd.channels c
       set paused_at = null, pause_until = null, pause_reason = null, paused_by = null,
           resumed_at = now(), resumed_by = :who, resume_reason = :reason
      from before b where c.channel = b.channel and b.was_suspended and (:seen_us::bigint is null or b.since_us = :seen_us)
    returning c.channel
)
select b.channel, b.reason, b.who, b.since_us, (extract(epoch from b.pause_until) * 1000000)::bigint as until_us,
       (extract(epoch from b.pause_until - now()) * 1000000)::bigint as left_us, null::bigint as probe_us,
       b.was_suspended, exists (select from resumed) as is_ended
  from before b
