-- claimable: the refunds that can be sent now, among ids that were taken out of a bucket; the beginning of a claim.
-- permits.sql follows, then claim.sql, which describes $15 and later.
with here as (
    select a.address from refundd.addresses a where a.channel = $2 and a.endpoint = $18 and a.inquiry = $19
), claimable as (
    -- The statement locks the rows before it spends permits. It leaves out a row that another transaction has locked,
    -- and does not wait. The id of that row has left the bucket; the feeder puts it back when the row is free.
    select r.id from refundd.refunds r
     -- The array of ids and `state || ''` make the planner find the rows by their ids. Otherwise a planner that saw
     -- ten rows would join the whole table or walk all ready rows, and keep that plan for millions of rows.
     where r.id = any($1) and r.channel = $2
       and r.due_at <= now() and (r.deadline_at is null or r.deadline_at > now())
       and (r.state || '' = 'ready'
            or (r.state || '' = 'unknown' and r.inquire_at is null
                and refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, $16 * interval '1 microsecond', $17, greatest(now(), timestamptz 'epoch' + $20::bigint * interval '1 microsecond'))
                and refundd.is_where_it_was_sent(r.sent_to, (select address from here), $2, false)))
       for no key update skip locked
