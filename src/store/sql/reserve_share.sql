-- reserve_share: reserves for this node a share of a limit that nodes count alone, or keeps the one that it has.
-- :shares    how many shares the limit has in the node's file
-- :rule      the rule of the whole limit
-- :rest_us   for how long its permits may count after the node took the last one
select given, other_node, other_shares, other_permits
  from refundd.reserve_share(:limit_name, :node, :shares, :rule::text::jsonb, :rest_us::bigint * interval '1 microsecond')
