-- end_cooling: a person ends the wait that a bank asked for and the lower rate after it, and the statement answers which wait that was.
-- The answer has no end (`until_us`) where the wait was over and only the lower rate ended. No row: there is no such channel.
-- :channel, :who, :reason
-- :seen_us   the end of the wait that may end now, in microseconds since 1970; null for any wait, and for a lower rate alone
with before as (
    -- The lock lets a refusal and an end at one time happen one after the other.
    select c.channel, coalesce(c.cool_reason, '') as reason, coalesce(c.cool_until > now(), false) as cools,
           case when c.cool_until > now() then c.cool_until end as until,
           :seen_us::bigint is null and refundd.slow_share(c.slow_percent, c.slow_ceiling, c.slow_step_us, c.slow_since) is not null as is_slowed
      from refundd.channels c where c.channel = :channel for no key update
), ended as (
    -- `refusals` stays: if the bank refuses again at once, that is a repeated refusal, and the rate is seven tenths.
    update refundd.channels c
       set cool_until = case when b.cools then now() else c.cool_until end, slow_percent = null, slow_since = null,
           cooling_ended_at = now(), cooling_ended_by = :who, cooling_end_reason = :reason
      from before b
     where c.channel = b.channel and (b.cools or b.is_slowed)
       and (:seen_us::bigint is null or (extract(epoch from b.until) * 1000000)::bigint = :seen_us)
    returning c.channel
)
select b.channel, b.reason, '' as who, null::bigint as since_us, (extract(epoch from b.until) * 1000000)::bigint as until_us,
       (extract(epoch from b.until - now()) * 1000000)::bigint as left_us, null::bigint as probe_us,
       b.cools or b.is_slowed as was_suspended, exists (select from ended) as is_ended
  from before b
