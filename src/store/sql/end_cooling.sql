-- end_cooling: a person ends the wait that a bank asked for, and the statement answers which wait that was. No row: there is no such channel.
-- :channel, :who, :reason
-- :seen_us   the end of the wait that may end now, in microseconds since 1970; null for any
with before as (
    -- The lock lets a refusal and an end at one time happen one after the other.
    select c.channel, c.cool_reason as reason, c.cool_until, (extract(epoch from c.cool_until) * 1000000)::bigint as until_us,
           coalesce(c.cool_until > now(), false) as was_suspended
      from refundd.channels c where c.channel = :channel for no key update
), ended as (
    -- The lower rate stays, and climbs back from now on. `refusals` stays, too: if the bank refuses again, that is a repeated refusal.
    update refundd.channels c
       set cool_until = now(), slow_since = case when c.slow_since is not null then least(c.slow_since, now()) end,
           cooling_ended_at = now(), cooling_ended_by = :who, cooling_end_reason = :reason
      from before b where c.channel = b.channel and b.was_suspended and (:seen_us::bigint is null or b.until_us = :seen_us)
    returning c.channel
)
select b.channel, b.reason, '' as who, null::bigint as since_us, b.until_us,
       (extract(epoch from b.cool_until - now()) * 1000000)::bigint as left_us, null::bigint as probe_us,
       b.was_suspended, exists (select from ended) as is_ended
  from before b
