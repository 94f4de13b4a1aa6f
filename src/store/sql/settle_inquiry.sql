-- settle_inquiry: writes the outcome of one inquiry, and moves its refund if the refund is unchanged since the
-- inquiry was leased. An answer that comes too late goes to the journal and moves nothing. If the journal has the
-- inquiry already, from a try whose commit the node did not see, the journal gets no second line.
-- $1 id  $2 epoch  $3 number of the inquiry  $4 state at the lease  $5 next state  $6 wait in us, null for none
-- $7 next inquiry in us, null for none  $8 reason  $9 bank reference  $10 channel  $11 node  $12 permit
-- $13 how many us ago the first byte left, null if none did
-- $14 outcome  $15 status  $16 code  $17 message
with moved as (
    update refundd.refunds r
       set state = $5,
           due_at = coalesce(now() + $6::bigint * interval '1 microsecond', r.due_at),
           inquire_at = now() + $7::bigint * interval '1 microsecond',
           reason = case when $5 = $4 then r.reason else $8 end,
           -- The bank itself says that it rejected the refund, so nothing is uncertain any more.
           uncertain_at = case when $5 = 'failed' then null else r.uncertain_at end,
           bank_ref = coalesce(r.bank_ref, $9),
           settled_at = case when $5 in ('succeeded', 'failed', 'cancelled') then now() end
     where r.id = $1 and r.state = $4 and r.lease_epoch = $2 and r.inquiries = $3
    returning r.id
), kept as (
    insert into refundd.attempts
           (refund_id, channel, kind, number, lease_epoch, node, permit, started_at, outcome, moved_to, status, code, message)
    select $1, $10, 'inquiry', $3, $2, $11, $12, clock_timestamp() - $13::bigint * interval '1 microsecond',
           $14, (select $5::text from moved), $15, $16, $17
     where not exists (
           select from refundd.attempts a
            where a.refund_id = $1 and a.kind = 'inquiry' and a.number = $3)
)
select id from moved
