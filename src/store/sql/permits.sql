-- permits: what every request to a bank begins with, a send or an inquiry: is the channel open, are the
-- permits good, and if so they are spent, in the very statement that leases what they are spent for. They are
-- spent for claimable refunds only, in the order of the line; permits beyond those are not written.
-- $1 ids, in the order of the line  $2 channel  $3 node  $4 lease in us
-- $5..$8 one row for each number: its permit's place from 1, limit, window start in us, ordinal  $9 numbers of each permit
-- $10 and $11 the permits' span in us of Redis's time, null where unlimited  $12 how far the clocks may be apart, in us
-- $13 and $14 each limit and the generation under which it granted
), gate as (
    -- A channel that is paused or cooling lets nothing through, whatever a node has heard so far;
    -- nor does a permit whose window is far from our own time: Postgres is the witness.
    select c.paused_at is null and (c.cool_until is null or c.cool_until <= now()) as is_open,
           $10::bigint is null
           or (timestamptz 'epoch' + $10 * interval '1 microsecond' < clock_timestamp() + $12 * interval '1 microsecond'
               and timestamptz 'epoch' + $11 * interval '1 microsecond' > clock_timestamp() - $12 * interval '1 microsecond')
           as is_timely
      from refundd.channels c
     where c.channel = $2
), good as (
    -- A generation that is over has no permits any more. Held until the commit, so that whoever begins
    -- a new one waits for us and then sees what we spent.
    select l.limit_name, l.generation from refundd.limits l
     where l.limit_name = any($13::text[])
       -- A day begins where the first node that published it says, for all nodes.
       and (l.rule like '% -' or not exists (
               select from unnest($6::text[], $7::bigint[]) as p (limit_name, window_us)
                where p.limit_name = l.limit_name
                  and not exists (select from refundd.zone_days d
                                   where d.zone = split_part(l.rule, ' ', 7) and d.begins_at = timestamptz 'epoch' + p.window_us * interval '1 microsecond')))
     order by l.limit_name for share
), current as (
    select count(*) = cardinality($13::text[]) as is_current
      from unnest($13::text[], $14::bigint[]) as g (limit_name, generation)
      join good on good.limit_name = g.limit_name and good.generation = g.generation
), given as (
    -- The first claimable refund gets the first permit, and so on; without limits there is nothing to give.
    select c.id, row_number() over (order by line.nth) as place
      from unnest($1::bigint[]) with ordinality as line (id, nth)
      join claimable c on c.id = line.id
     where $9 > 0
), spent as (
    -- A number that stands there already was handed out twice: whoever comes second gets nothing.
    insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
    select p.limit_name, timestamptz 'epoch' + p.window_us * interval '1 microsecond', p.ordinal, given.id, $3
      from unnest($5::bigint[], $6::text[], $7::bigint[], $8::integer[]) as p (place, limit_name, window_us, ordinal)
      join given on given.place = p.place
      join gate on gate.is_open and gate.is_timely
      join current on current.is_current
     order by p.limit_name, p.window_us, p.ordinal -- two claims never wait for each other
        on conflict on constraint permits_are_spent_once do nothing
    returning refund_id
), covered as (
    select refund_id as id from spent group by refund_id having count(*) = $9
    union all
    select c.id from claimable c join gate on gate.is_open and gate.is_timely where $9 = 0
