-- channels_with_due_inquiries: channels that have a refund with a due inquiry.
-- The statement jumps from channel to channel through the index, like channels_with_due.
    with recursive oldest as (
        (select channel, inquire_at from refundd.refunds where inquire_at is not null order by channel, inquire_at, id limit 1)
        union all
        select next.channel, next.inquire_at
          from oldest, lateral (
              select r.channel, r.inquire_at from refundd.refunds r
               where r.inquire_at is not null and r.channel > oldest.channel
               order by r.channel, r.inquire_at, r.id limit 1) next
    )
    select channel from oldest where inquire_at <= now()
