-- claim: leases a few refunds and spends their permits, in one commit. gate.sql and permits.sql describe the other parameters.
-- :holder                  names the node and the claim, for the leases
-- :resend_within_us        how long after its first send a refund may be sent again under the same request id, null for never
-- :most_sends              of one refund
-- :endpoint, :inquiry      the node's bank address for sends, and for inquiries
-- :witnessed_us            Postgres's time as the node's own clock carried it on: a clock that was set back puts off no deadline, and
--                          does not lengthen the time in which the bank remembers a request id
with here as (
    select a.address from refundd.addresses a where a.channel = :channel and a.endpoint = :endpoint and a.inquiry = :inquiry
), claimable as (
    -- The statement locks the rows before it spends permits. It leaves out a row that another transaction has locked,
    -- and does not wait. The id of that row has left the bucket; the feeder puts it back when the row is free.
    select r.id from refundd.refunds r
     -- The array of ids and `state || ''` make the planner find the rows by their ids. Otherwise a planner that saw
     -- ten rows would join the whole table or walk all ready rows, and keep that plan for millions of rows.
     where r.id = any(:id) and r.channel = :channel
       -- A failover may lose the node's address. Then the lease could not say where the refund is sent: null counts as the
       -- channel's first address.
       and exists (select from here)
       and r.due_at <= now() and (r.deadline_at is null or r.deadline_at > greatest(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond'))
       and (r.state || '' = 'ready'
            or (r.state || '' = 'unknown' and r.inquire_at is null
                and refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, :resend_within_us * interval '1 microsecond', :most_sends, greatest(now(), timestamptz 'epoch' + :witnessed_us::bigint * interval '1 microsecond'))
                and refundd.is_where_it_was_sent(r.sent_to, (select address from here), :channel, false)
                and not refundd.was_said_paid(r.id, true)))
       for no key update skip locked
),
-- gate.sql stands here, then permits.sql or unlimited.sql
leased as (
    update refundd.refunds r
       set state = 'sending', version = r.version + 1, attempts = r.attempts + 1,
           -- A refund that is sent again keeps the reason why it may have been executed. settle.sql says what becomes of it.
           reason = case when r.uncertain_at is not null then r.reason end,
           -- From now on bytes may leave, and the bank may remember the request id.
           first_sent_at = coalesce(r.first_sent_at, now()),
           -- Inquiries go to the address of the first send that the bank may have executed.
           sent_to = case when r.uncertain_at is null then (select address from here) else r.sent_to end,
           -- Not `now()`: the claim may have waited for locks since, and the clock may have been set meanwhile. clock_stepped.sql
           -- lengthens no lease that it does not see yet.
           lease_epoch = r.lease_epoch + 1, lease_node = :holder, lease_until = clock_timestamp() + :lease_us * interval '1 microsecond'
     where r.id = any(array(select id from covered)) and r.channel = :channel
       and r.state || '' in ('ready', 'unknown') -- `claimable` locked the row in this state
    returning r.id, r.uncertain_at is not null as is_resend, r.first_sent_at = now() as is_first, r.bank_ref, r.lease_epoch, r.attempts, r.refund_ref, r.payment_ref, r.amount_minor, r.currency,
              r.payload::text as payload, r.request_id, (extract(epoch from r.created_at) * 1000000)::bigint as created_us, r.traceparent
)
select requested.id as requested_id, coalesce(gate.is_open, false) as is_open, timely.is_timely, current.is_current, current.has_new_server,
       exists (select from here) as has_address, given.place, leased.*
  from unnest(:id::bigint[]) as requested (id)
  left join gate on true
  cross join timely
  cross join current
  left join given on given.id = requested.id
  left join leased on leased.id = requested.id
