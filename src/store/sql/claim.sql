-- claim: leases a handful of refunds, and spends the permits they leave under, in one commit.
-- $1 ids  $2 channel  $3 node  $4 lease in us
-- $5..$8 one row for each permit: refund id, limit, window start in us, ordinal  $9 permits for each refund
-- $14 and $15 each limit and the generation under which it granted
-- $10 and $11 the permits' span in us of Redis's time, null where unlimited  $12 how far the clocks may be apart, in us  $13 who holds the leases
with gate as (
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
     where l.limit_name = any($14::text[])
     order by l.limit_name for share
), current as (
    select count(*) = cardinality($14::text[]) as is_current
      from unnest($14::text[], $15::bigint[]) as g (limit_name, generation)
      join good on good.limit_name = g.limit_name and good.generation = g.generation
), spent as (
    -- A number that stands there already was handed out twice: whoever comes second gets nothing.
    insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
    select p.limit_name, timestamptz 'epoch' + p.window_us * interval '1 microsecond', p.ordinal, p.refund_id, $3
      from unnest($5::bigint[], $6::text[], $7::bigint[], $8::integer[]) as p (refund_id, limit_name, window_us, ordinal)
      join gate on gate.is_open and gate.is_timely
      join current on current.is_current
     order by p.limit_name, p.window_us, p.ordinal -- two claims never wait for each other
        on conflict on constraint permits_are_spent_once do nothing
    returning refund_id
), covered as (
    select refund_id as id from spent group by refund_id having count(*) = $9
    union all
    select distinct unnest($1::bigint[]) from gate where $9 = 0 and is_open and is_timely
), leased as (
    update refundd.refunds r
       set state = 'sending', attempts = r.attempts + 1, reason = null,
           lease_epoch = r.lease_epoch + 1, lease_node = $13, lease_until = now() + $4 * interval '1 microsecond'
      from covered
     where r.id = covered.id and r.channel = $2
       -- Not plainly `state = 'ready'`: the rows are to be found by their ids, never by a walk along all that
       -- are ready, which is what a planner chooses that has not yet counted a backlog that came all at once.
       and r.state || '' = 'ready' and r.due_at <= now() and (r.deadline_at is null or r.deadline_at > now())
    returning r.id, r.lease_epoch, r.attempts, r.refund_ref, r.payment_ref, r.amount_minor, r.currency,
              r.payload::text as payload, r.request_id, (extract(epoch from r.created_at) * 1000000)::bigint as created_us
)
select asked.id as asked_id, coalesce(gate.is_open, false) as is_open, coalesce(gate.is_timely, true) as is_timely, current.is_current,
       covered.id is not null as is_covered, leased.*
  from (select distinct unnest($1::bigint[]) as id) asked
  left join gate on true
  cross join current
  left join covered on covered.id = asked.id
  left join leased on leased.id = asked.id
