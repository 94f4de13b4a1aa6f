-- permits: the part that a claim under limits has after gate.sql, for sends and for inquiries.
-- It checks that the permits are good, and spends them in the statement that leases the refunds. It spends permits for
-- claimable refunds only, in the order of the bucket, and writes no other permits.
-- :id                                          in the order of the bucket
-- :place, :limit_name, :window_us, :ordinal    one row for each number: its permit's place from 1; the window by its start
-- :numbers_each                                how many numbers each permit has
-- :opens_us, :closes_us                        the permits' span, by Redis's clock
-- :clock_tolerance_us                          how far clocks may differ
-- :step_matters_us                             for how long the ledger counts again after another server took over
-- :generation_of, :generation                  one row for each limit: the generation under which it granted
-- :own_rule, :stricter_rule                    of each limit: its rule on this node, and the rule of another node under which it
--                                              granted, null for none
timely as (
    -- A permit whose span is far from Postgres's own time lets no claim through.
    select coalesce(timestamptz 'epoch' + :opens_us::bigint * interval '1 microsecond' < clock_timestamp() + :clock_tolerance_us * interval '1 microsecond'
                    and timestamptz 'epoch' + :closes_us::bigint * interval '1 microsecond' > clock_timestamp() - :clock_tolerance_us * interval '1 microsecond',
                    false) as is_timely
), checked as materialized (
    -- Before the rows below are locked: the function takes a stronger lock of some of them.
    select refundd.permits_keep_rules(:generation_of::text[], :own_rule::text[], :stricter_rule::text[],
                                      :limit_name::text[], :window_us::bigint[], :ordinal::integer[], :clock_tolerance_us::bigint) as keeps_rules
), good as (
    -- Permits of an older generation are void. The row stays locked until the commit, so that a node that begins a
    -- generation waits for this claim and then sees its permits.
    select l.limit_name, l.generation, l.server_since from refundd.limits l
     where l.limit_name = any(:generation_of::text[])
       and (select keeps_rules from checked)
     order by l.limit_name for share
), current as (
    select count(*) = cardinality(:generation_of::text[]) as is_current,
           -- Windows may have been named by two clocks.
           coalesce(bool_or(good.server_since > clock_timestamp() - :step_matters_us * interval '1 microsecond'), false) as has_new_server
      from unnest(:generation_of::text[], :generation::bigint[]) as g (generation_of, generation)
      join good on good.limit_name = g.generation_of and good.generation = g.generation
), given as (
    -- The first claimable refund gets the first permit, and so on.
    select c.id, row_number() over (order by requested.nth) as place
      from unnest(:id::bigint[]) with ordinality as requested (id, nth)
      join claimable c on c.id = requested.id
), spent as (
    -- A number that the ledger has already was granted twice: the second claim gets no permit.
    insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
    select p.limit_name, timestamptz 'epoch' + p.window_us * interval '1 microsecond', p.ordinal, given.id, :node
      from unnest(:place::bigint[], :limit_name::text[], :window_us::bigint[], :ordinal::integer[]) as p (place, limit_name, window_us, ordinal)
      join given on given.place = p.place
      join gate on gate.is_open
      join timely on timely.is_timely
      join current on current.is_current
     order by p.limit_name, p.window_us, p.ordinal -- in order, so that two claims never wait for each other
        on conflict on constraint permits_are_spent_once do nothing
    returning refund_id
), covered as (
    select refund_id as id from spent group by refund_id having count(*) = :numbers_each
),
