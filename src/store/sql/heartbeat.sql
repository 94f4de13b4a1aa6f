-- heartbeat: writes this node's liveness row, and answers the living nodes, the oldest first.
-- $1 node  $2 version  $3 its channels, null to leave them as they are  $4 digest of its configuration
-- $5 whether Redis is away  $6 kind of bucket  $7 status report of its channels, null to leave it as it is
    with mine as (
        insert into refundd.nodes as n (node, version, channels, config_digest, bucket, standing)
        values ($1, $2, coalesce($3::text[], '{}'), case when $3::text[] is null then '' else $4 end, $6, coalesce($7::text::jsonb, '{}'))
            on conflict (node) do update
           set seen_at = now(), bucket = excluded.bucket, standing = coalesce($7::text::jsonb, n.standing),
               channels = case when $3::text[] is null then n.channels else excluded.channels end,
               config_digest = case when $3::text[] is null then n.config_digest else excluded.config_digest end,
               -- A node that cannot reach Redis becomes the youngest node, so that another node leads.
               started_at = case when $5 then now() else n.started_at end
    ), revived as (
        -- A node that was taken for dead is back: its channels are not retired any more.
        update refundd.channels set retired_at = null
         where channel = any($3::text[]) and retired_at is not null
    )
    select node, config_digest, bucket from refundd.nodes
     where seen_at > now() - interval '4 seconds' and node <> $1 or node = $1
     order by started_at, node
