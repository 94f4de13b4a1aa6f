-- claim: leases a handful of refunds, and spends the permits they leave under, in one commit. It begins with
-- permits.sql.
-- $15 who holds the leases  $16 how long after its first send a refund may be sent again under the same key, in
-- us, null for never  $17 most sends
-- $18 and $19 where this node sends, and asks
), here as (
    select a.address from refundd.addresses a where a.channel = $2 and a.endpoint = $18 and a.inquiry = $19
), leased as (
    update refundd.refunds r
       set state = 'sending', attempts = r.attempts + 1, reason = null,
           -- Bytes may leave from now on, and the bank remember the key.
           first_sent_at = coalesce(r.first_sent_at, now()),
           -- The first of several sends that may have been executed is where the bank is asked.
           sent_to = case when r.uncertain_at is null then (select address from here) else r.sent_to end,
           lease_epoch = r.lease_epoch + 1, lease_node = $15, lease_until = now() + $4 * interval '1 microsecond'
     -- As one array, and not plainly `state = 'ready'`: the rows are to be found by their ids. A planner that saw
     -- ten rows would join all that there are, or walk along all that are ready, and stay with that when there are millions.
     where r.id = any(array(select id from covered)) and r.channel = $2
       and r.due_at <= now() and (r.deadline_at is null or r.deadline_at > now())
       and (r.state || '' = 'ready'
            or (r.state || '' = 'unknown' and r.inquire_at is null
                and refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, $16 * interval '1 microsecond', $17)
                and refundd.is_where_it_was_sent(r.sent_to, (select address from here), $2, false)))
    returning r.id, r.uncertain_at is not null as is_resend, r.first_sent_at = now() as is_first, r.bank_ref, r.lease_epoch, r.attempts, r.refund_ref, r.payment_ref, r.amount_minor, r.currency,
              r.payload::text as payload, r.request_id, (extract(epoch from r.created_at) * 1000000)::bigint as created_us
)
select asked.id as asked_id, coalesce(gate.is_open, false) as is_open, coalesce(gate.is_timely, true) as is_timely, current.is_current,
       covered.id is not null as is_covered, leased.*
  from (select distinct unnest($1::bigint[]) as id) asked
  left join gate on true
  cross join current
  left join covered on covered.id = asked.id
  left join leased on leased.id = asked.id
