-- show_overdue: moves to review the refunds that no inquiry settled until the end of the schedule, or that never got an
-- inquiry: the address is unreachable, the channel stays paused, or no permit is left for them. A refund with an
-- inquiry in progress is not due.
-- A call looks at the next rows of one index only. Millions of inquiries may be due, and no index has the age: one
-- look at all of them would take longer than a statement may.
-- :after_channel, :after_us, :after_id   the last row that the call before looked at
-- :looks_at         rows to look at
-- :most             refunds to move
-- :without          refunds to leave alone
-- :witnessed_us     the time as in lapse.sql
-- :patience_us      the patience for an accepted refund
-- :shown_after_us   the age at which inquiries end
    with looked_at as materialized (
        select u.id, u.channel, u.inquire_at,
               case u.state when 'accepted' then u.due_at - :patience_us * interval '1 microsecond'
                            else coalesce(u.uncertain_at, u.created_at) end as began_at
          from refundd.refunds u
         where u.inquire_at is not null
           and (u.channel, u.inquire_at, u.id) > (:after_channel, timestamptz 'epoch' + :after_us * interval '1 microsecond', :after_id)
         order by u.channel, u.inquire_at, u.id limit :looks_at
    ), overdue as (
        select l.id from looked_at l
         where l.inquire_at <= now()
           and l.began_at + :shown_after_us * interval '1 microsecond' <= least(now(), timestamptz 'epoch' + :witnessed_us * interval '1 microsecond')
           and l.began_at + :shown_after_us * interval '1 microsecond' + refundd.stepped_forward(l.began_at)
               <= least(now(), timestamptz 'epoch' + :witnessed_us * interval '1 microsecond')
           and l.id not in (select w.without from unnest(:without::bigint[]) as w (without))
         limit :most
    ), locked as (
        -- An answer that came since the look has moved the inquiry on, or ended it.
        select u.id from refundd.refunds u where u.id in (select id from overdue) and u.inquire_at <= now()
           for update of u skip locked
    ), moved as (
        update refundd.refunds r
           set state = 'review',
               reason = concat_ws('; before: ',
                           'inquiries_used_up: nothing settled it in ' || extract(day from justify_hours(:shown_after_us * interval '1 microsecond'))
                               || ' days, in which the bank was asked ' || r.inquiries || ' times',
                           r.reason)
          from locked where r.id = locked.id
        returning r.id, r.channel, refundd.recovery_moved(r, 'inquiries_used_up')
    ), furthest as (
        select channel, (extract(epoch from inquire_at) * 1000000)::bigint as us, id
          from looked_at order by looked_at.channel desc, looked_at.inquire_at desc, looked_at.id desc limit 1
    )
    select (select count(*) from looked_at) as looks, f.channel as last_channel, f.us as last_us, f.id as last_id,
           moved.id, moved.channel
      from furthest f left join moved on true
