-- show_moved: moves to review the refunds that may have been sent to another address than their channel's present one.
-- It waits a minute after the change, in which a person may put the old address back. A channel that only lost its
-- inquiry, at the same bank, did not move.
-- Most channels never had another address: their refunds are not read. In the others a call looks at the next rows
-- only. Millions of accepted refunds may have been sent to the present address, and no index has the address.
-- :after_channel, :after_id   the last row that the call before looked at
-- :looks_at         rows to look at
-- :most             refunds to move
-- :without          refunds to leave alone
    with changed as materialized (
        select c.channel, c.address, c.inquires, case when c.channel = :after_channel then :after_id::bigint else 0 end as after_id
          from refundd.channels c
         where c.channel >= :after_channel and c.address_since < now() - interval '1 minute'
           and exists (select from refundd.addresses a
                        where a.channel = c.channel and a.address <> c.address
                          and not refundd.is_where_it_was_sent(a.address, c.address, c.channel, c.inquires))
         order by c.channel
    ), looked_at as materialized (
        -- The lateral join reads one channel after the other, in the order of `changed`. So the limit cuts no channel out.
        select c.channel, c.address as here, c.inquires, u.id, u.sent_to
          from changed c cross join lateral (
            -- Each half follows the index refunds_unsettled; both states together would be sorted.
            select either.id, either.sent_to
              from ((select r.id, r.sent_to from refundd.refunds r
                      where r.state = 'unknown' and r.channel = c.channel and r.id > c.after_id order by r.id limit :looks_at)
                    union all
                    (select r.id, r.sent_to from refundd.refunds r
                      where r.state = 'accepted' and r.channel = c.channel and r.id > c.after_id order by r.id limit :looks_at)) either
             order by either.id limit :looks_at) u
         limit :looks_at
    ), elsewhere as (
        select l.id, l.here as address, l.inquires, l.sent_to
          from looked_at l
         where not refundd.is_where_it_was_sent(l.sent_to, l.here, l.channel, l.inquires)
           and l.id not in (select w.without from unnest(:without::bigint[]) as w (without))
         limit :most
    ), locked as (
        -- An answer that came since the look has ended the doubt, and a later send may have gone to the present address.
        select u.id,
-- address_reason.sql stands here
               as reason
          from elsewhere c join refundd.refunds u on u.id = c.id
         where u.state in ('unknown', 'accepted') and u.sent_to is not distinct from c.sent_to
           for update of u skip locked
    ), moved as (
        update refundd.refunds r set state = 'review', reason = locked.reason
          from locked where r.id = locked.id and locked.reason is not null
        returning r.id, r.channel, refundd.recovery_moved(r, 'address_changed')
    ), furthest as (
        select channel, id from looked_at order by looked_at.channel desc, looked_at.id desc limit 1
    )
    select (select count(*) from looked_at) as looks, f.channel as last_channel, 0::bigint as last_us, f.id as last_id,
           moved.id, moved.channel
      from furthest f left join moved on true
