-- claimable: of the ids that stood in line, those whose refunds can be sent now; the beginning of a claim.
-- permits.sql follows, then claim.sql, which says what $15 and later are.
with here as (
    select a.address from refundd.addresses a where a.channel = $2 and a.endpoint = $18 and a.inquiry = $19
), claimable as (
    -- Locked before a permit is spent for any of them. A row that somebody else holds is left out and not waited
    -- for: its id left the line, and is fed again when the row is free.
    select r.id from refundd.refunds r
     -- By one array, and not plainly `state = 'ready'`: the rows are to be found by their ids. A planner that saw
     -- ten rows would join all that there are, or walk along all that are ready, and stay with that when there are millions.
     where r.id = any($1) and r.channel = $2
       and r.due_at <= now() and (r.deadline_at is null or r.deadline_at > now())
       and (r.state || '' = 'ready'
            or (r.state || '' = 'unknown' and r.inquire_at is null
                and refundd.may_be_resent(r.first_sent_at, r.attempts, r.deadline_at, $16 * interval '1 microsecond', $17, greatest(now(), timestamptz 'epoch' + $20::bigint * interval '1 microsecond'))
                and refundd.is_where_it_was_sent(r.sent_to, (select address from here), $2, false)))
       for no key update skip locked
