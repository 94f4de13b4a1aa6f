-- claimable_inquiry: the refunds with a due inquiry, among ids that were taken out of a bucket; the beginning of a
-- claim. permits.sql follows, then claim_inquiry.sql, which describes $15 and $18.
-- $16 and $17 the node's bank address for sends, and for inquiries
with here as (
    select a.address from refundd.addresses a where a.channel = $2 and a.endpoint = $16 and a.inquiry = $17
), claimable as (
    select r.id from refundd.refunds r
     where r.id = any($1) and r.channel = $2
       and r.state || '' in ('unknown', 'accepted') and r.inquire_at <= now() -- found by id, as in claimable.sql
       and refundd.is_where_it_was_sent(r.sent_to, (select address from here), $2, true)
       for no key update skip locked
