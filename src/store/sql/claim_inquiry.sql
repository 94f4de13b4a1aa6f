-- claim_inquiry: leases inquiries and spends their permits, in one commit. The statement begins with
-- claimable_inquiry.sql and permits.sql. The lease is the time to the next inquiry; the outcome of this inquiry moves
-- that time.
-- $15 the patience for an accepted refund, in us
-- $18 Postgres's time as the node's own clock carried it on, in us: a clock that was set forward ends no grace early
), leased as (
    update refundd.refunds r
       -- If the refund's address had no inquiry, all inquiries go to the address of its first inquiry.
       set sent_to = case when exists (select from refundd.addresses was where was.address = r.sent_to and was.inquiry = '')
                          then (select address from here) else r.sent_to end,
           inquire_at = now() + $4 * interval '1 microsecond', inquiries = r.inquiries + 1
     where r.id = any(array(select id from covered)) and r.channel = $2
       and r.state || '' in ('unknown', 'accepted') -- claimable_inquiry.sql locked the row in this state
    returning r.id, r.state, r.lease_epoch, r.inquiries, r.attempts, r.request_id, r.refund_ref, r.amount_minor, r.currency, r.bank_ref,
              (extract(epoch from least(now(), timestamptz 'epoch' + $18::bigint * interval '1 microsecond') - r.uncertain_at
                                  - refundd.stepped_forward(r.uncertain_at)) * 1000000)::bigint as uncertain_us,
              -- The `due_at` of an accepted refund is the end of its patience.
              (extract(epoch from now() - case r.state when 'accepted' then r.due_at - $15 * interval '1 microsecond'
                                                       else coalesce(r.uncertain_at, r.created_at) end) * 1000000)::bigint as age_us
)
select asked.id as asked_id, coalesce(gate.is_open, false) as is_open, coalesce(gate.is_timely, true) as is_timely, current.is_current,
       given.place, leased.*
  from unnest($1::bigint[]) as asked (id)
  left join gate on true
  cross join current
  left join given on given.id = asked.id
  left join leased on leased.id = asked.id
