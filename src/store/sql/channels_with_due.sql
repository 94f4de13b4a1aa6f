-- channels_with_due: channels that have a refund to send, or to send again.
-- The statement jumps from channel to channel through the index. A channel without ready refunds costs nothing.
    with recursive oldest as (
        (select channel, due_at from refundd.refunds where state = 'ready' order by channel, due_at, id limit 1)
        union all
        select next.channel, next.due_at
          from oldest, lateral (
              select r.channel, r.due_at from refundd.refunds r
               where r.state = 'ready' and r.channel > oldest.channel
               order by r.channel, r.due_at, r.id limit 1) next
    ), again as (
        (select channel, due_at from refundd.refunds
          where state = 'unknown' and inquire_at is null order by channel, due_at, id limit 1)
        union all
        select next.channel, next.due_at
          from again, lateral (
              select r.channel, r.due_at from refundd.refunds r
               where r.state = 'unknown' and r.inquire_at is null and r.channel > again.channel
               order by r.channel, r.due_at, r.id limit 1) next
    )
    select channel from oldest where due_at <= now()
    union
    select again.channel from again join refundd.channels c on c.channel = again.channel
     where again.due_at <= now() and c.resend_within is not null
