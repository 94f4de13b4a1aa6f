-- reserve_share: reserves for this node a share of a limit that nodes count alone.
-- :shares   how many shares the limit has
-- Keeps the share that this node has, or reserves the first share that no node has renewed for ten seconds.
    with own as (
        update refundd.limit_shares set seen_at = now() where limit_name = :limit_name and node = :node and share <= :shares returning share
    ), free as (
        select s.share from generate_series(1, :shares) s (share)
          left join refundd.limit_shares l on l.limit_name = :limit_name and l.share = s.share
         where not exists (select from own) and (l.node is null or l.seen_at < now() - interval '10 seconds')
         order by s.share limit 1
    ), taken as (
        insert into refundd.limit_shares as l (limit_name, share, node) select :limit_name, share, :node from free
            on conflict (limit_name, share) do update set node = excluded.node, seen_at = now()
         where l.seen_at < now() - interval '10 seconds'
        returning share
    )
    select share from own union all select share from taken order by share limit 1
