-- census: the status of each channel and its counts of refunds by state, for people, pages and metrics.
    with counted as (
        select channel, jsonb_object_agg(state, n) as counts from refundd.counts() group by channel
    ), running as (
        -- Reads each node's channels once, and not again for each channel.
        select run.channel, array_agg(n.node order by n.node) as nodes
          from refundd.nodes n, unnest(n.channels) as run (channel)
         where n.seen_at between now() - interval '10 seconds' and now() + interval '4 seconds' group by run.channel
    ), sent as (
        select channel, count(*) as n, bool_and(outcome = 'not_executed') as is_refused,
               count(*) filter (where outcome in ('succeeded', 'accepted')) as accepted,
               count(*) filter (where outcome in ('succeeded', 'accepted') and finished_at > now() - interval '10 seconds') as accepted_lately
          from refundd.attempts
         where finished_at > now() - interval '1 minute' and kind = 'send' and started_at is not null group by channel
    ), doubtful as (
        -- The bank refused all sends of the last minute, or asked to wait for so long that there was none.
        select c.channel from refundd.channels c left join sent on sent.channel = c.channel
         where coalesce(sent.is_refused, c.cool_until > now() - interval '1 minute')
    ), recent as (
        -- The journal has no index by channel: this reads half an hour of it, at most 200,000 lines, and only where a channel is doubtful.
        -- Above 111 lines a second of all channels these lines are less than half an hour, and above 333 less than the ten minutes of
        -- RefunddBankAcceptsNothing. What this finds is then a lower bound, so that rule also rings where each count of ten minutes found
        -- a refusing bank. Above 3,333 the lines are less than the minute that `in_a_row` needs: only long waits are seen then. The lines
        -- may also have fewer than two sends of a channel that pauses in between: `in_a_row` finds nothing then, and the gauge is 0.
        select a.channel, a.id, a.finished_at, a.code, a.status,
               max(a.id) filter (where a.outcome <> 'not_executed') over (partition by a.channel) as last_taken
          from refundd.attempts a
         where exists (select from doubtful) and a.finished_at > now() - interval '30 minutes'
           and a.id > (select max(id) - 200000 from refundd.attempts) and a.kind = 'send'
           and a.started_at is not null and a.channel in (select channel from doubtful)
    ), in_a_row as (
        -- The sends since the last one that the bank did not refuse.
        select channel, min(finished_at) as since, count(*) as sends, count(*) filter (where code = 'asked_to_wait' or status in (425, 429)) as waits,
               bool_and(last_taken is null) as is_older
          from recent where last_taken is null or id > last_taken
         group by channel having count(*) > 1 and min(finished_at) < now() - interval '1 minute'
    ), waiting as (
        -- One long wait leaves no second send to judge by, and its own line may be too old for `recent`. Its event `cooled` says since
        -- when, and stands in the index of the channel's events. Until its end the channel sends nothing, unless a person ended the wait.
        -- A later refusal that makes a wait longer writes no event: such a wait is seen here only until the end that its event names,
        -- and not at all if it began with one minute or less.
        -- refundd obeys no wait of more than a day.
        select c.channel, min(e.at) as since
          from refundd.channels c join refundd.events e on e.channel = c.channel and e.kind = 'cooled'
         where c.cool_until > now() and (e.after ->> 'until')::timestamptz > now()
           and e.at between now() - interval '1 day' and now() - interval '10 minutes'
           and e.at > coalesce(c.cooling_ended_at, '-infinity') group by c.channel
    ), refusing as (
        select coalesce(r.channel, w.channel) as channel, least(r.since, w.since) as since, coalesce(r.sends, 1) as sends,
               coalesce(r.waits, 1) as waits, coalesce(r.is_older, true) as is_older
          from in_a_row r full join waiting w on w.channel = r.channel
    )
    select c.channel, coalesce(counted.counts, '{}') as counts, coalesce(sent.n, 0) as sent, coalesce(sent.accepted, 0) as accepted,
           coalesce(sent.accepted_lately, 0) as accepted_lately, c.max_backlog,
           (extract(epoch from refusing.since) * 1000000)::bigint as refusing_us, (extract(epoch from now() - refusing.since) * 1000000)::bigint as refusing_for_us,
           coalesce(refusing.sends, 0) as refused, coalesce(refusing.waits, 0) as waits, coalesce(refusing.is_older, false) as is_older,
           -- How long the longest due refund has been due, counted from its save at the earliest: a producer may save a `due_at` of last
           -- year. The first refund in order is the answer if it was saved before it became due. Else the thousand that go first
           -- decide; one that waits longer behind them is not seen, so the answer is a lower bound.
           (select (extract(epoch from now() - case when head.created_at <= head.due_at then head.due_at
                        else (select min(greatest(r.due_at, r.created_at))
                                from (select r.due_at, r.created_at from refundd.refunds r
                                       where r.channel = c.channel and r.state = 'ready' and r.due_at <= now()
                                       order by r.due_at, r.id limit 1000) r) end) * 1000000)::bigint
              from (select r.due_at, r.created_at from refundd.refunds r
                     where r.channel = c.channel and r.state = 'ready' and r.due_at <= now()
                     order by r.due_at, r.id limit 1) head) as oldest_us,
           refundd.slow_share(c.slow_percent, c.slow_ceiling, c.slow_step_us, c.slow_since) as slowed, c.full_since is not null as is_full,
           c.late::bigint as late, (extract(epoch from c.late_from) * 1000000)::bigint as late_us,
           coalesce(running.nodes, '{}') as run_by, c.retired_at is not null as is_retired
      from refundd.channels c
      left join counted on counted.channel = c.channel
      left join running on running.channel = c.channel
      left join sent on sent.channel = c.channel
      left join refusing on refusing.channel = c.channel
     where c.retired_at is null or counted.counts is not null
     order by c.channel
