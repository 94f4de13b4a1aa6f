-- spend: writes permits that were granted to another service to the ledger, all of one limit.
-- $1..$4 one row for each permit: limit, window start in us, ordinal, generation  $5 the other service  $6 node
-- $7 and $8 the permits' span in us of Redis's time  $9 how far the clocks may be apart, in us
with gate as (
    select timestamptz 'epoch' + $7 * interval '1 microsecond' < clock_timestamp() + $9 * interval '1 microsecond'
           and timestamptz 'epoch' + $8 * interval '1 microsecond' > clock_timestamp() - $9 * interval '1 microsecond' as is_timely
), good as (
    -- The row stays locked until the commit, so that no generation begins in between.
    select l.limit_name, l.generation from refundd.limits l
     where l.limit_name = any($1::text[])
       -- For all nodes a day begins when the first node that published it says.
       and (l.rule ->> 'zone' is null or not exists (
               select from unnest($1::text[], $2::bigint[]) as p (limit_name, window_us)
                where p.limit_name = l.limit_name
                  and not exists (select from refundd.zone_days d
                                   where d.zone = l.rule ->> 'zone' and d.begins_at = timestamptz 'epoch' + p.window_us * interval '1 microsecond')))
     order by l.limit_name for share
), spent as (
    insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
    select p.limit_name, timestamptz 'epoch' + p.window_us * interval '1 microsecond', p.ordinal, $5, $6
      from unnest($1::text[], $2::bigint[], $3::integer[], $4::bigint[]) as p (limit_name, window_us, ordinal, generation)
      join gate on gate.is_timely
      join good on good.limit_name = p.limit_name and good.generation = p.generation
     order by p.limit_name, p.window_us, p.ordinal
        on conflict on constraint permits_are_spent_once do nothing
    returning 1
)
select gate.is_timely, (select count(*) from spent) as spent from gate
