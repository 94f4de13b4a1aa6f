-- forecast: counts the refunds of each channel that will miss their deadlines, and writes the counts to the channels.
-- Answers the channels that have late refunds now and had none before, or had some and have none now.
-- :channel, :rate                    one row for each channel: its even rate, in refunds a second; infinite if only its quota counts
-- :permits, :spent, :ends_s, :per_s   its quota, or nulls: the permits of a window, those that are spent of the running one, when that
--                                     one ends, and how long the next ones last
-- The refunds of a channel are sent in the order of due_at, at its rate: each when it is due and those before it are sent. So
-- refund i is sent at the latest due_at of a refund j up to i, and i - j + 1 sends later. A backlog that is gone before a refund is
-- due does not delay it. Times are seconds from now, because timestamps end too early for a small rate and a long backlog.
-- The permits of a quota have numbers, from 0 in the running window on through all windows. A refund gets the next number, or the
-- first number of the window that runs when its turn comes, if that is higher.
-- The forecast reads only the first 200,000 refunds of a channel; if a channel will be late, these show it. It reads none of a channel
-- without a deadline: has_deadlines is worked out before them (materialized), and stands below the window functions.
    with rates as materialized (
        select a.channel, a.rate, a.permits, a.spent, a.ends_s, a.per_s,
               exists (select from refundd.refunds d
                        where d.state = 'ready' and d.deadline_at is not null and d.channel = a.channel) as has_deadlines
          from unnest(:channel::text[], :rate::float8[], :permits::float8[], :spent::float8[], :ends_s::float8[], :per_s::float8[])
               as a (channel, rate, permits, spent, ends_s, per_s)
    ), ahead as (
        select rates.channel, count(l.deadline_at) as late, min(l.deadline_at) as late_from
          from rates
          left join lateral (
               select numbered.deadline_at
                 from (select paced.deadline_at, paced.sent_s,
                              max(case when paced.sent_s < rates.ends_s then rates.spent
                                       else (1 + floor((paced.sent_s - rates.ends_s) / rates.per_s)) * rates.permits end - paced.place)
                                  over (order by paced.due_at, paced.id rows unbounded preceding) + paced.place as number
                         from (select backlog.id, backlog.due_at, backlog.deadline_at, backlog.place,
                                      max(backlog.due_s - (backlog.place - 1) / rates.rate)
                                          over (order by backlog.due_at, backlog.id rows unbounded preceding) + backlog.place / rates.rate as sent_s
                                 from (select r.id, r.due_at, r.deadline_at, row_number() over (order by r.due_at, r.id) as place,
                                              case when r.due_at > now() then extract(epoch from r.due_at - now())::float8 else 0 end as due_s
                                         from refundd.refunds r where rates.has_deadlines and r.channel = rates.channel and r.state = 'ready'
                                        order by r.due_at, r.id limit 200000) backlog
                              ) paced
                      ) numbered
                -- At the beginning of a window those that waited for it go at the even rate.
                where extract(epoch from numbered.deadline_at - now())::float8
                      < greatest(numbered.sent_s,
                                 case when numbered.number >= rates.permits
                                      then rates.ends_s + (floor(numbered.number / rates.permits) - 1) * rates.per_s
                                           + (numbered.number - floor(numbered.number / rates.permits) * rates.permits + 1) / rates.rate end)
          ) l on true
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
