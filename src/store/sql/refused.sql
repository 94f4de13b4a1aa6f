-- refused: a bank asked for fewer requests. The channel cools and then runs at a lower rate. No row: there is no such channel, or a
-- person ended its cooling after the refused request began. Such a refusal says nothing about what the bank does now.
-- :named_us       the wait that the bank named, or null
-- :reason         the bank's answer
-- :slows          whether the rate is lowered, too
-- :spacing_us     the time between two permits of the shortest limit, null without limits
-- :step_us        the step in which the rate climbs back, null without limits
-- :cool_down_us   the longest pause if the bank names no wait
-- :age_us         how long ago the refused request began
with before as (
    select c.channel, c.cool_until, c.slow_percent, c.slow_ceiling, c.slow_since, c.refusals,
           -- A refusal within thirty permits after the last pause is a repeated one; without limits, within one `cool_down`.
           coalesce(:spacing_us::bigint * 30, :cool_down_us::bigint) as within_us,
           coalesce(refundd.slow_share(c.slow_percent, c.slow_ceiling, c.slow_step_us, c.slow_since), 100) as share,
           -- Refusals of requests that were under way at the first refusal count as one refusal.
           coalesce(now() - :age_us * interval '1 microsecond' < c.cool_until, false) as is_same,
           -- Read under the row's lock. An end after `clock_timestamp()` was written before the clock was set back.
           coalesce(c.cooling_ended_at between now() - :age_us * interval '1 microsecond' and clock_timestamp(), false) as is_over
      from refundd.channels c where c.channel = :channel for update
), counted as (
    select b.*, case when b.is_same then greatest(b.refusals, 1)
                     when b.cool_until + b.within_us * interval '1 microsecond' > now() - :age_us * interval '1 microsecond'
                     then least(b.refusals + 1, 1000) else 1 end as nth
      from before b
), meant as (
    select c.*,
           case when c.is_same and :named_us::bigint is null then c.cool_until
                else greatest(c.cool_until, now() + coalesce(:named_us::bigint, least(:cool_down_us::bigint, coalesce(:spacing_us::bigint, :cool_down_us::bigint) * 2 ^ least(c.nth, 20))) * interval '1 microsecond')
           end as until,
           greatest(case when c.nth = 1 then c.share * 9 / 10 else c.share * 7 / 10 end, 10) as lower,
           case when c.nth = 1 and c.share = 100 then 100
                when c.nth = 1 then c.share - 5 else c.share * 85 / 100 end as ceiling
      from counted c
)
update refundd.channels c
   set cool_until = m.until, cool_reason = :reason, refusals = m.nth, repeated_within_us = m.within_us,
       slow_step_us = coalesce(:step_us::bigint, c.slow_step_us),
       slow_percent = case when :slows and not m.is_same then m.lower - m.lower % 5 else m.slow_percent end,
       slow_ceiling = case when :slows and not m.is_same then greatest(m.ceiling - m.ceiling % 5, m.lower - m.lower % 5, 10) else m.slow_ceiling end,
       slow_since = case when (:slows and not m.is_same) or m.slow_percent is not null then greatest(m.slow_since, m.until) end
  from meant m
 where c.channel = m.channel and not m.is_over
returning (extract(epoch from m.until - now()) * 1000000)::bigint as left_us, m.is_same
