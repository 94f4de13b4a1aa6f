-- heartbeat: writes this node's liveness row, and answers the living nodes, the oldest first, and which of them leads. It also answers
-- the nodes whose rows are ahead of the clock.
-- :channels        what it runs, null to leave the row's channels and digest as they are
-- :status_report   of its channels, null to leave the row's report as it is
-- :settings        the other sections of its file that a reload takes over, null to leave those of the row
    with mine as (
        insert into refundd.nodes as n (node, version, channels, config_digest, bucket, standing, settings)
        values (:node, :version, coalesce(:channels::text[], '{}'), case when :channels::text[] is null then '' else :config_digest end,
                :bucket, coalesce(:status_report::text::jsonb, '{}'), coalesce(:settings::text::jsonb, '{}'))
            on conflict (node) do update
           set seen_at = now(), bucket = excluded.bucket, standing = coalesce(:status_report::text::jsonb, n.standing),
               settings = coalesce(:settings::text::jsonb, n.settings),
               channels = case when :channels::text[] is null then n.channels else excluded.channels end,
               config_digest = case when :channels::text[] is null then n.config_digest else excluded.config_digest end,
               -- While a node cannot reach Redis, its `started_at` equals its `seen_at`. So it is younger than each node that has Redis.
               started_at = case when :redis_is_away then now() else n.started_at end
    ), revived as (
        -- A node that was taken for dead is back: its channels are not retired any more.
        update refundd.channels set retired_at = null
         where channel = any(:channels::text[]) and retired_at is not null
    )
    -- The oldest node with Redis leads. If all have lost Redis, the first by name leads: ages change with each heartbeat then.
    -- The statement reads this node's row from before this heartbeat, so whether it has Redis comes from the parameter.
    select node, config_digest, bucket, is_ahead,
           not is_ahead and row_number() over (
               order by is_ahead, case when node <> :node then nullif(started_at, seen_at) when not :redis_is_away then started_at end nulls last, node
           ) = 1 as leads
      from (
          -- The clock was set back. This node died before that, or it lives and writes its row again within a second.
          select n.*, n.node <> :node and n.seen_at > now() + interval '4 seconds' as is_ahead
            from refundd.nodes n
           where n.seen_at > now() - interval '4 seconds' or n.node = :node
      ) known
     order by started_at, node
