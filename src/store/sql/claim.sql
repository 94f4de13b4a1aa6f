-- claim: leases a few refunds and spends their permits, in one commit. The statement begins with claimable.sql and
-- permits.sql.
-- $15 name of the node and the claim, for the leases  $16 how long after its first send a refund may be sent again
-- under the same request id, in us, null for never  $17 most sends
-- $18 and $19 the node's bank address for sends, and for inquiries
-- $20 Postgres's time as the node's own clock carried it on, in us: a clock that was set back does not lengthen the
-- time in which the bank remembers a request id
), leased as (
    update refundd.refunds r
       set state = 'sending', version = r.version + 1, attempts = r.attempts + 1, reason = null,
           -- From now on bytes may leave, and the bank may remember the request id.
           first_sent_at = coalesce(r.first_sent_at, now()),
           -- Inquiries go to the address of the first send that the bank may have executed.
           sent_to = case when r.uncertain_at is null then (select address from here) else r.sent_to end,
           lease_epoch = r.lease_epoch + 1, lease_node = $15, lease_until = now() + $4 * interval '1 microsecond'
     where r.id = any(array(select id from covered)) and r.channel = $2
       and r.state || '' in ('ready', 'unknown') -- claimable.sql locked the row in this state
    returning r.id, r.uncertain_at is not null as is_resend, r.first_sent_at = now() as is_first, r.bank_ref, r.lease_epoch, r.attempts, r.refund_ref, r.payment_ref, r.amount_minor, r.currency,
              r.payload::text as payload, r.request_id, (extract(epoch from r.created_at) * 1000000)::bigint as created_us
)
select asked.id as asked_id, coalesce(gate.is_open, false) as is_open, coalesce(gate.is_timely, true) as is_timely, current.is_current,
       given.place, leased.*
  from unnest($1::bigint[]) as asked (id)
  left join gate on true
  cross join current
  left join given on given.id = asked.id
  left join leased on leased.id = asked.id
