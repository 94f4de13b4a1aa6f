-- census: the status of each channel and its counts of refunds by state, for people, pages and metrics.
    with counted as (
        select channel, jsonb_object_agg(state, n) as counts from refundd.counts() group by channel
    ), running as (
        -- Reads each node's channels once, and not again for each channel.
        select run.channel, array_agg(n.node order by n.node) as nodes
          from refundd.nodes n, unnest(n.channels) as run (channel)
         where n.seen_at > now() - interval '10 seconds' group by run.channel
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
        select a.channel, a.id, a.finished_at, a.code, a.status,
               max(a.id) filter (where a.outcome <> 'not_executed') over (partition by a.channel) as last_taken
          from refundd.attempts a
         where exists (select from doubtful) and a.finished_at > now() - interval '30 minutes'
           and a.id > (select max(id) - 200000 from refundd.attempts) and a.kind = 'send'
           and a.started_at is not null and a.channel in (select channel from doubtful)
    ), refusing as (
        -- The sends since the last one that the bank did not refuse.
        select channel, min(finished_at) as since, count(*) as sends, count(*) filter (where code = 'asked_to_wait' or status in (425, 429)) as waits,
               bool_and(last_taken is null) as is_older
          from recent where last_taken is null or id > last_taken
         group by channel having count(*) > 1 and min(finished_at) < now() - interval '1 minute'
    )
    select c.channel, coalesce(counted.counts, '{}') as counts, coalesce(sent.n, 0) as sent, coalesce(sent.accepted, 0) as accepted,
           coalesce(sent.accepted_lately, 0) as accepted_lately, c.max_backlog,
           (extract(epoch from refusing.since) * 1000000)::bigint as refusing_us, (extract(epoch from now() - refusing.since) * 1000000)::bigint as refusing_for_us,
           coalesce(refusing.sends, 0) as refused, coalesce(refusing.waits, 0) as waits, coalesce(refusing.is_older, false) as is_older,
           (select (extract(epoch from now() - r.due_at) * 1000000)::bigint from refundd.refunds r
             where r.channel = c.channel and r.state = 'ready' and r.due_at <= now()
             order by r.due_at, r.id limit 1) as oldest_us,
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
