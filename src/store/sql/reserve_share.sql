-- reserve_share: reserves for this node a share of a limit that nodes count alone.
-- $1 limit  $2 node  $3 how many shares
-- Keeps the share that this node has, or reserves the first share that no node has renewed for ten seconds.
    with held as (
        update refundd.limit_shares set seen_at = now() where limit_name = $1 and node = $2 and share <= $3 returning share
    ), free as (
        select s.share from generate_series(1, $3) s (share)
          left join refundd.limit_shares l on l.limit_name = $1 and l.share = s.share
         where not exists (select from held) and (l.node is null or l.seen_at < now() - interval '10 seconds')
         order by s.share limit 1
    ), taken as (
        insert into refundd.limit_shares as l (limit_name, share, node) select $1, share, $2 from free
            on conflict (limit_name, share) do update set node = excluded.node, seen_at = now()
         where l.seen_at < now() - interval '10 seconds'
        returning share
    )
    select share from held union all select share from taken order by share limit 1
