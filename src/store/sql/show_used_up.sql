-- show_used_up: moves to review the unknown refunds that may not be sent again any more: their sends, the time in which
-- the bank knows their key, or their deadlines are used up. Where the bank can be asked, it plans an inquiry instead.
-- A call looks at the next rows of one index only: while a bank is away, millions of refunds may wait to be sent again,
-- and no index has the moment at which that ends.
-- :after_channel, :after_us, :after_id   the last row that the call before looked at
-- :looks_at         rows to look at
-- :most             refunds to move, or to plan an inquiry about
-- :without          refunds to leave alone
    with looked_at as materialized (
        select u.id, u.channel, u.due_at, u.sent_to, u.first_sent_at, u.attempts, u.deadline_at
          from refundd.refunds u
         where u.state = 'unknown' and u.inquire_at is null
           and (u.channel, u.due_at, u.id) > (:after_channel, timestamptz 'epoch' + :after_us * interval '1 microsecond', :after_id)
         order by u.channel, u.due_at, u.id limit :looks_at
    ), used_up as (
        select l.id, l.first_sent_at, l.attempts, c.address, c.inquires
          from looked_at l join refundd.channels c on c.channel = l.channel
         where c.on_unknown = 'resend' and c.retired_at is null
           and not refundd.may_be_resent(l.first_sent_at, l.attempts, l.deadline_at, c.resend_within, c.most_sends)
           and (not c.inquires or refundd.is_where_it_was_sent(l.sent_to, c.address, l.channel, true))
           and l.id not in (select w.without from unnest(:without::bigint[]) as w (without))
         limit :most
    ), locked as (
        -- An answer that came since the look has ended the doubt. A send since then began another one.
        select u.id, c.inquires,
-- address_reason.sql stands here
               as elsewhere
          from used_up c join refundd.refunds u on u.id = c.id
         where u.state = 'unknown' and u.inquire_at is null
           and u.attempts = c.attempts and u.first_sent_at is not distinct from c.first_sent_at
           for update of u skip locked
    ), planned as (
        update refundd.refunds r set inquire_at = now()
          from locked where r.id = locked.id and locked.inquires
        returning r.id, r.channel
    ), shown as (
        update refundd.refunds r set state = 'review', reason = coalesce(locked.elsewhere, r.reason)
          from locked where r.id = locked.id and not locked.inquires
        returning r.id, r.channel,
                  refundd.recovery_moved(r, case when locked.elsewhere is null then 'nothing_left_to_try' else 'address_changed' end)
    ), moved as (
        select id, channel, true as is_planned from planned
        union all
        select id, channel, false from shown
    ), furthest as (
        select channel, (extract(epoch from due_at) * 1000000)::bigint as us, id
          from looked_at order by looked_at.channel desc, looked_at.due_at desc, looked_at.id desc limit 1
    )
    select (select count(*) from looked_at) as looks, f.channel as last_channel, f.us as last_us, f.id as last_id,
           moved.id, moved.channel, moved.is_planned
      from furthest f left join moved on true
