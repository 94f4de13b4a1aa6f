-- claimable_inquiry: of the ids that stood in line, those that the bank is to be asked about now; the beginning of a
-- claim. permits.sql follows, then claim_inquiry.sql. $16 and $17 say where this node sends, and asks.
with here as (
    select a.address from refundd.addresses a where a.channel = $2 and a.endpoint = $16 and a.inquiry = $17
), claimable as (
    select r.id from refundd.refunds r
     where r.id = any($1) and r.channel = $2
       and r.state || '' in ('unknown', 'accepted') and r.inquire_at <= now() -- by id, as in claimable.sql
       and refundd.is_where_it_was_sent(r.sent_to, (select address from here), $2, true)
       for no key update skip locked
