-- forecast: counts the refunds of each channel that will miss their deadlines, and writes the counts to the channels.
-- Answers the channels that have late refunds now and had none before, or had some and have none now.
-- :channel, :rate   one row for each channel: its rate, in refunds a second
-- The refunds of a channel are sent in the order of due_at, at its rate: each when it is due and those before it are sent. So
-- refund i is sent at the latest due_at of a refund j up to i, and i - j + 1 sends later. A backlog that is gone before a refund is
-- due does not delay it. Times are seconds from now, because timestamps end too early for a small rate and a long backlog.
-- The forecast reads only the first 200,000 refunds of a channel; if a channel will be late, these show it.
    with rates as (
        select a.channel, a.rate from unnest(:channel::text[], :rate::float8[]) as a (channel, rate)
    ), ahead as (
        select rates.channel, count(l.deadline_at) as late, min(l.deadline_at) as late_from
          from rates
          left join lateral (
               select paced.deadline_at
                 from (select backlog.deadline_at,
                              max(backlog.due_s - (backlog.place - 1) / rates.rate) over (order by backlog.due_at, backlog.id rows unbounded preceding)
                              + backlog.place / rates.rate as sent_s
                         from (select r.id, r.due_at, r.deadline_at, row_number() over (order by r.due_at, r.id) as place,
                                      case when r.due_at > now() then extract(epoch from r.due_at - now())::float8 else 0 end as due_s
                                 from refundd.refunds r where r.channel = rates.channel and r.state = 'ready'
                                order by r.due_at, r.id limit 200000) backlog
                      ) paced
                where extract(epoch from paced.deadline_at - now())::float8 < paced.sent_s
          ) l on exists (select from refundd.refunds d
                          where d.state = 'ready' and d.deadline_at is not null and d.channel = rates.channel)
         group by rates.channel
    ), before as (
        select c.channel, c.late from refundd.channels c where c.channel = any(:channel)
    ), written as (
        update refundd.channels c set late = a.late, late_from = a.late_from
          from ahead a where c.channel = a.channel and (c.late, c.late_from) is distinct from (a.late::integer, a.late_from)
        returning c.channel
    ), unlimited as (
        -- No rate, no forecast: the channel lost its limits, or is run no more.
        update refundd.channels c set late = 0, late_from = null where c.late > 0 and c.channel <> all(:channel)
    )
    select a.channel, a.late, (extract(epoch from a.late_from) * 1000000)::bigint as from_us
      from ahead a join before on before.channel = a.channel
     where (a.late > 0) <> (before.late > 0)
