-- cancel: withdraws refunds that are ready, and writes that to the journal. The function does both, or neither: nodes may
-- not write a decision into the journal themselves.
-- :seen         of each refund, only this version; null for any
-- :channels     only refunds of these channels; null for all
-- :never_sent   only refunds of which no byte ever left
with moved as (
    select c.* from (select t.seen, array_agg(t.id) as ids from unnest(:id::bigint[], :seen::integer[]) as t (id, seen) group by t.seen) g
     cross join lateral refundd.cancel(g.ids, g.seen, :why, :who, :channels, :never_sent) c
)
select
-- refund_columns.sql stands here
  from moved r
