-- permits: the middle of every claim, for sends and for inquiries. It checks that the channel is open and the permits
-- are good, and spends the permits in the statement that leases the refunds. It spends permits for claimable refunds
-- only, in the order of the bucket, and writes no other permits.
-- $1 ids, in the order of the bucket  $2 channel  $3 node  $4 lease in us
-- $5..$8 one row for each number: its permit's place from 1, limit, window start in us, ordinal
-- $9 how many numbers each permit has, 0 without limits
-- $10 and $11 the permits' span in us of Redis's time, null without limits  $12 how far clocks may differ, in us
-- $13 and $14 each limit and the generation under which it granted
), gate as (
    -- A channel that is paused or cooling lets no claim through, even if the node does not know yet. A permit whose
    -- span is far from Postgres's own time lets no claim through either.
    select c.paused_at is null and (c.cool_until is null or c.cool_until <= now()) as is_open,
           $10::bigint is null
           or (timestamptz 'epoch' + $10 * interval '1 microsecond' < clock_timestamp() + $12 * interval '1 microsecond'
               and timestamptz 'epoch' + $11 * interval '1 microsecond' > clock_timestamp() - $12 * interval '1 microsecond')
           as is_timely
      from refundd.channels c
     where c.channel = $2
), good as (
    -- Permits of an older generation are void. The row stays locked until the commit, so that a node that begins a
    -- generation waits for this claim and then sees its permits.
    select l.limit_name, l.generation from refundd.limits l
     where l.limit_name = any($13::text[])
       -- For all nodes a day begins when the first node that published it says.
       and (l.rule ->> 'zone' is null or not exists (
               select from unnest($6::text[], $7::bigint[]) as p (limit_name, window_us)
                where p.limit_name = l.limit_name
                  and not exists (select from refundd.zone_days d
                                   where d.zone = l.rule ->> 'zone' and d.begins_at = timestamptz 'epoch' + p.window_us * interval '1 microsecond')))
     order by l.limit_name for share
), current as (
    select count(*) = cardinality($13::text[]) as is_current
      from unnest($13::text[], $14::bigint[]) as g (limit_name, generation)
      join good on good.limit_name = g.limit_name and good.generation = g.generation
), given as (
    -- The first claimable refund gets the first permit, and so on. A channel without limits has no numbers to give.
    select c.id, row_number() over (order by line.nth) as place
      from unnest($1::bigint[]) with ordinality as line (id, nth)
      join claimable c on c.id = line.id
     where $9 > 0
), spent as (
    -- A number that the ledger has already was granted twice: the second claim gets no permit.
    insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
    select p.limit_name, timestamptz 'epoch' + p.window_us * interval '1 microsecond', p.ordinal, given.id, $3
      from unnest($5::bigint[], $6::text[], $7::bigint[], $8::integer[]) as p (place, limit_name, window_us, ordinal)
      join given on given.place = p.place
      join gate on gate.is_open and gate.is_timely
      join current on current.is_current
     order by p.limit_name, p.window_us, p.ordinal -- in order, so that two claims never wait for each other
        on conflict on constraint permits_are_spent_once do nothing
    returning refund_id
), covered as (
    select refund_id as id from spent group by refund_id having count(*) = $9
    union all
    select c.id from claimable c join gate on gate.is_open and gate.is_timely where $9 = 0
