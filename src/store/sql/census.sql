-- census: the status of each channel and its counts of refunds by state, for people, pages and metrics.
    with counted as (
        select channel, jsonb_object_agg(state, n) as counts from refundd.counts() group by channel
    ), running as (
        -- Reads each node's channels once, and not again for each channel.
        select run.channel, array_agg(n.node order by n.node) as nodes
          from refundd.nodes n, unnest(n.channels) as run (channel)
         where n.seen_at > now() - interval '10 seconds' group by run.channel
    ), sent as (
        select channel, count(*) as n, count(*) filter (where finished_at > now() - interval '10 seconds') as lately from refundd.attempts
         where finished_at > now() - interval '1 minute' and kind = 'send' and started_at is not null group by channel
    ), stopped as (
        -- For each channel, and for `*`, what stops it until somebody ends that: the causes, and the first of them.
        select s.channel, array_agg(s.source order by s.source) as sources,
               (array_agg(s.reason order by s.source desc) filter (where s.source <> 'breaker'))[1] as reason,
               (array_agg(s.who order by s.source desc) filter (where s.source <> 'breaker'))[1] as who,
               (array_agg(s.since order by s.source desc) filter (where s.source <> 'breaker'))[1] as since,
               max(s.reason) filter (where s.source = 'breaker') as tripped_by,
               max(s.since) filter (where s.source = 'breaker') as tripped_at
          from refundd.suspended s group by s.channel
    )
    select c.channel, coalesce(counted.counts, '{}') as counts, coalesce(sent.n, 0) as sent, coalesce(sent.lately, 0) as sent_lately, c.max_backlog,
           (select (extract(epoch from now() - r.due_at) * 1000000)::bigint from refundd.refunds r
             where r.channel = c.channel and r.state = 'ready' and r.due_at <= now()
             order by r.due_at, r.id limit 1) as oldest_us,
           coalesce(everything.reason, own.reason) as pause_reason, coalesce(everything.who, own.who) as paused_by,
           (extract(epoch from coalesce(everything.since, own.since)) * 1000000)::bigint as paused_us,
           coalesce(everything.sources, '{}') || coalesce(own.sources, '{}') as suspended_by,
           own.tripped_by, (extract(epoch from own.tripped_at) * 1000000)::bigint as tripped_us,
           (extract(epoch from case when c.cool_until > now() then c.cool_until end) * 1000000)::bigint as cool_us,
           c.cool_reason, refundd.slow_share(c.slow_percent, c.slow_ceiling, c.slow_step_us, c.slow_since) as slowed, c.full_since is not null as is_full,
           c.late::bigint as late, (extract(epoch from c.late_from) * 1000000)::bigint as late_us,
           coalesce(running.nodes, '{}') as run_by
      from refundd.channels c
      left join counted on counted.channel = c.channel
      left join running on running.channel = c.channel
      left join sent on sent.channel = c.channel
      left join stopped own on own.channel = c.channel
      left join stopped everything on everything.channel = '*'
     where c.retired_at is null or counted.counts is not null
     order by c.channel
