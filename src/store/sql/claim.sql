-- claim: leases a handful of refunds, and spends the permits they leave under, in one commit. It begins with
-- claimable.sql and permits.sql.
-- $15 who holds the leases  $16 how long after its first send a refund may be sent again under the same key, in
-- us, null for never  $17 most sends
-- $18 and $19 where this node sends, and asks
-- $20 Postgres's time as the node's own clock carried it on, in us: a retention does not last by a clock that was set back
), leased as (
    update refundd.refunds r
       set state = 'sending', version = r.version + 1, attempts = r.attempts + 1, reason = null,
           -- Bytes may leave from now on, and the bank remember the key.
           first_sent_at = coalesce(r.first_sent_at, now()),
           -- The first of several sends that may have been executed is where the bank is asked.
           sent_to = case when r.uncertain_at is null then (select address from here) else r.sent_to end,
           lease_epoch = r.lease_epoch + 1, lease_node = $15, lease_until = now() + $4 * interval '1 microsecond'
     where r.id = any(array(select id from covered)) and r.channel = $2
       and r.state || '' in ('ready', 'unknown') -- locked above, and as it was found there
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
