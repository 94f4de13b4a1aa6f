-- reserve_shares: reserves for this node a share of each limit that nodes count alone, or keeps the one that it has.
-- :limit_name, :shares, :rule, :rest_us    one row for each limit: how many shares it has in the node's file; the rule of the whole
--                                          limit; for how long its permits may count after the node took the last one
-- :lock_timeout                            the longest wait for a lock, such as 500ms
-- :skips                                   whether to leave out limits whose lock another transaction has
select n.nth, r.given, r.other_node, r.other_shares, r.other_permits
  from (select w.limit_name, w.shares, w.rule, w.rest_us, w.nth
          from (select set_config('lock_timeout', :lock_timeout, true)) as patience
         cross join unnest(:limit_name::text[], :shares::integer[], :rule::text[], :rest_us::bigint[])
                    with ordinality as w (limit_name, shares, rule, rest_us, nth)
         where not :skips::boolean
               or exists (select from refundd.share_locks l where l.limit_name = w.limit_name for no key update skip locked)
               -- The function makes the lock of a new limit.
               or not exists (select from refundd.share_locks l where l.limit_name = w.limit_name)
         -- The function takes the locks in this order on all nodes, also on those of older versions. So two nodes never wait for each other.
         order by hashtext(w.limit_name), w.limit_name) as n
 cross join lateral refundd.reserve_share(n.limit_name, :node, n.shares, n.rule::jsonb, n.rest_us * interval '1 microsecond') as r
