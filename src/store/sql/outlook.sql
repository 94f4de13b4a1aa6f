-- outlook: what a forecast of channels needs from Postgres.
-- :channel   the channels
-- Refunds that become due later are grouped: each group spans an eighth of an e-fold of the time from now on.
    with living as (
        select run.channel, count(*) as nodes
          from refundd.nodes n, unnest(n.channels) as run (channel)
         where n.seen_at between now() - interval '10 seconds' and now() + interval '4 seconds' group by run.channel
    )
    select c.channel, (extract(epoch from now()) * 1000000)::bigint as now_us,
           array(select l ->> 'name' from jsonb_array_elements(case when jsonb_typeof(c.settings -> 'limits') = 'array' then c.settings -> 'limits' end) l
                  where l ->> 'name' is not null) as limits,
           coalesce(jsonb_typeof(c.settings -> 'inquiry') = 'object' and jsonb_typeof(c.settings -> 'inquiry' -> 'limits') is distinct from 'array', false) as inquiries_share,
           (c.settings ->> 'max_in_flight')::integer as max_in_flight,
           coalesce(living.nodes, 0) as nodes,
           stopped.is_paused, (extract(epoch from greatest(stopped.until, case when c.cool_until > now() then c.cool_until end) - now()) * 1000000)::bigint as cooling_us,
           case when refundd.slow_share(c.slow_percent, c.slow_ceiling, c.slow_step_us, c.slow_since) is not null
                then c.slow_percent::integer end as slow_percent,
           c.slow_ceiling::integer as slow_ceiling, c.slow_step_us, (extract(epoch from now() - c.slow_since) * 1000000)::bigint as slow_for_us,
           later.in_us as later_us, later.refunds as later_refunds,
           (select count(*) from refundd.refunds r where r.channel = c.channel and r.inquire_at <= now()) as inquiries,
           (select count(*) from refundd.refunds r
             where c.resend_within is not null and r.channel = c.channel and r.state = 'unknown' and r.inquire_at is null and r.due_at <= now()) as resends
      from refundd.channels c
      left join living on living.channel = c.channel
     cross join lateral (
         -- A suspension without an end lasts until somebody acts; of the others the last one counts.
         select coalesce(bool_or(s.until is null), false) as is_paused, max(s.until) as until
           from refundd.suspended s where s.channel in (c.channel, '*')
     ) stopped
     cross join lateral (
         select coalesce(array_agg(g.in_us order by g.in_us), '{}') as in_us, coalesce(array_agg(g.n order by g.in_us), '{}') as refunds
           from (select (extract(epoch from min(r.due_at) - now()) * 1000000)::bigint as in_us, count(*) as n
                   from refundd.refunds r
                  where r.channel = c.channel and r.state = 'ready' and r.due_at > now()
                  group by floor(8 * ln(1 + extract(epoch from r.due_at - now())::float8))) g
     ) later
     where c.channel = any(:channel::text[])
     order by c.channel
