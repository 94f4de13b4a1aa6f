-- permits: the part that every claim has, for sends and for inquiries; the one file here that is no whole statement.
-- It checks that the channel is open and the permits are good, and spends the permits in the statement that leases the
-- refunds. It spends permits for claimable refunds only, in the order of the bucket, and writes no other permits.
-- :id                                          in the order of the bucket
-- :place, :limit_name, :window_us, :ordinal    one row for each number: its permit's place from 1; the window by its start
-- :numbers_each                                how many numbers each permit has, 0 without limits
-- :opens_us, :closes_us                        the permits' span, by Redis's clock, null without limits
-- :clock_tolerance_us                          how far clocks may differ
-- :generation_of, :generation                  one row for each limit: the generation under which it granted
-- :is_send                                     false for an inquiry
-- :own_rule, :stricter_rule                    of each limit: its rule on this node, and the rule of another node under which it
--                                              granted, null for none
gate as (
    -- A suspended channel lets no claim through, even if the node does not know yet. The breaker stops sends alone, and
    -- lets the node through that has reserved the probe. A permit whose span is far from Postgres's own time lets no
    -- claim through either.
    select (c.paused_at is null or c.pause_until <= now()) and (c.cool_until is null or c.cool_until <= now())
           and not exists (
               select from refundd.suspensions s
                where s.channel = any(array[c.channel, '*']) and s.ended_at is null and (s.until is null or s.until > now())
                  and (s.source <> 'breaker'
                       or (:is_send::boolean and not coalesce(s.probe_by = :node and s.probe_until > now(), false)))) as is_open,
           :opens_us::bigint is null
           or (timestamptz 'epoch' + :opens_us * interval '1 microsecond' < clock_timestamp() + :clock_tolerance_us * interval '1 microsecond'
               and timestamptz 'epoch' + :closes_us * interval '1 microsecond' > clock_timestamp() - :clock_tolerance_us * interval '1 microsecond')
           as is_timely
      from refundd.channels c
     where c.channel = :channel
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
           -- Windows may have been named by two clocks; `Counted::STEP_MATTERS` is as long.
           coalesce(bool_or(good.server_since > clock_timestamp() - interval '30 seconds'), false) as has_new_server
      from unnest(:generation_of::text[], :generation::bigint[]) as g (generation_of, generation)
      join good on good.limit_name = g.generation_of and good.generation = g.generation
), given as (
    -- The first claimable refund gets the first permit, and so on. A channel without limits has no numbers to give.
    select c.id, row_number() over (order by line.nth) as place
      from unnest(:id::bigint[]) with ordinality as line (id, nth)
      join claimable c on c.id = line.id
     where :numbers_each > 0
), spent as (
    -- A number that the ledger has already was granted twice: the second claim gets no permit.
    insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
    select p.limit_name, timestamptz 'epoch' + p.window_us * interval '1 microsecond', p.ordinal, given.id, :node
      from unnest(:place::bigint[], :limit_name::text[], :window_us::bigint[], :ordinal::integer[]) as p (place, limit_name, window_us, ordinal)
      join given on given.place = p.place
      join gate on gate.is_open and gate.is_timely
      join current on current.is_current
     order by p.limit_name, p.window_us, p.ordinal -- in order, so that two claims never wait for each other
        on conflict on constraint permits_are_spent_once do nothing
    returning refund_id
), covered as (
    select refund_id as id from spent group by refund_id having count(*) = :numbers_each
    union all
    select c.id from claimable c join gate on gate.is_open and gate.is_timely where :numbers_each = 0
),
