-- claim_inquiry: leases inquiries and spends their permits, in one commit. The lease is the time to the next inquiry; the
-- outcome of this inquiry moves that time. gate.sql and permits.sql describe the other parameters.
-- :endpoint, :inquiry      the node's bank address for sends, and for inquiries
-- :patience_us             for an accepted refund
-- :witnessed_us            Postgres's time as the node's own clock carried it on: a clock that was set forward ends no grace
--                          early, and no schedule of inquiries
with here as (
    select a.address from refundd.addresses a where a.channel = :channel and a.endpoint = :endpoint and a.inquiry = :inquiry
), claimable as (
    select r.id from refundd.refunds r
     where r.id = any(:id) and r.channel = :channel
       and exists (select from here) -- as in claim.sql
       and r.state || '' in ('unknown', 'accepted') and r.inquire_at <= now() -- found by id, as in claim.sql
       and refundd.is_where_it_was_sent(r.sent_to, (select address from here), :channel, true)
       for no key update skip locked
),
-- gate.sql stands here, then permits.sql or unlimited.sql
leased as (
    update refundd.refunds r
       -- If the refund's address had no inquiry, all inquiries go to the address of its first inquiry.
       set sent_to = case when exists (select from refundd.addresses was where was.address = r.sent_to and was.inquiry = '')
                          then (select address from here) else r.sent_to end,
           inquire_at = now() + :lease_us * interval '1 microsecond', inquiries = r.inquiries + 1
     where r.id = any(array(select id from covered)) and r.channel = :channel
       and r.state || '' in ('unknown', 'accepted') -- `claimable` locked the row in this state
    returning r.id, r.state, r.lease_epoch, r.inquiries, (extract(epoch from r.uncertain_at) * 1000000)::bigint as uncertain_at_us, r.attempts, r.request_id, r.refund_ref, r.amount_minor, r.currency, r.bank_ref,
              (extract(epoch from least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond') - r.uncertain_at
                                  - refundd.stepped_forward(r.uncertain_at)) * 1000000)::bigint as uncertain_us,
              -- The `due_at` of an accepted refund is the end of its patience. show_overdue.sql measures the same age.
              (select (extract(epoch from least(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond') - began.at
                                          - refundd.stepped_forward(began.at)) * 1000000)::bigint
                 from (select case r.state when 'accepted' then r.due_at - :patience_us * interval '1 microsecond'
                                           else coalesce(r.uncertain_at, r.created_at) end as at) began) as age_us
)
select requested.id as requested_id, coalesce(gate.is_open, false) as is_open, timely.is_timely, current.is_current, current.has_new_server,
       exists (select from here) as has_address, given.place, leased.*
  from unnest(:id::bigint[]) as requested (id)
  left join gate on true
  cross join timely
  cross join current
  left join given on given.id = requested.id
  left join leased on leased.id = requested.id
