-- spend: writes permits that were granted to another service to the ledger, all of one limit.
-- :limit_name, :window_us, :ordinal, :generation   one row for each permit; the window by its start
-- :of_limit, :own_rule, :stricter_rule              the limit, its rule on this node, and the rule of another node under which it
--                                                  granted, null for none
-- :caller                                          the other service
-- :opens_us, :closes_us                            the permits' span, by Redis's clock
-- :clock_tolerance_us                              how far the clocks may be apart
-- :step_matters_us                                 as in permits.sql
-- :channels                                        the channels that have the limit
-- :witnessed_us                                    the time as in gate.sql
with gate as (
    select timestamptz 'epoch' + :opens_us * interval '1 microsecond' < clock_timestamp() + :clock_tolerance_us * interval '1 microsecond'
           and timestamptz 'epoch' + :closes_us * interval '1 microsecond' > clock_timestamp() - :clock_tolerance_us * interval '1 microsecond' as is_timely,
           -- A person stopped everything, or every channel that shares the limit.
           not exists (select from refundd.suspensions s
                        where s.channel = '*' and s.source = 'all' and s.ended_at is null
                          and (s.until is null or s.until > least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond')))
           and (cardinality(:channels::text[]) = 0
                or exists (select from unnest(:channels::text[]) as of_limit (channels)
                            where not exists (select from refundd.channels c
                                               where c.channel = of_limit.channels and c.paused_at is not null
                                                 and (c.pause_until is null
                                                      or c.pause_until > least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond'))))) as is_open
), checked as materialized (
    -- Before the row below is locked: the function may take a stronger lock of it.
    select refundd.permits_keep_rules(array[:of_limit::text], array[:own_rule::text], array[:stricter_rule::text],
                                      :limit_name::text[], :window_us::bigint[], :ordinal::integer[], :clock_tolerance_us::bigint) as keeps_rules
), good as (
    -- The row stays locked until the commit, so that no generation begins in between.
    select l.limit_name, l.generation, l.server_since from refundd.limits l
     where l.limit_name = any(:limit_name::text[])
       and (select keeps_rules from checked)
     order by l.limit_name for share
), spent as (
    insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
    select p.limit_name, timestamptz 'epoch' + p.window_us * interval '1 microsecond', p.ordinal, :caller, :node
      from unnest(:limit_name::text[], :window_us::bigint[], :ordinal::integer[], :generation::bigint[]) as p (limit_name, window_us, ordinal, generation)
      join gate on gate.is_timely and gate.is_open
      join good on good.limit_name = p.limit_name and good.generation = p.generation
     order by p.limit_name, p.window_us, p.ordinal
        on conflict on constraint permits_are_spent_once do nothing
    returning 1
)
select gate.is_timely, gate.is_open, (select count(*) from spent) as spent,
       exists (select from good where good.server_since > clock_timestamp() - :step_matters_us * interval '1 microsecond') as has_new_server
  from gate
