-- resume: ends a person's pause of one channel, and answers whether there was one. No row: there is no such channel.
-- :channel, :who, :reason
with before as (
    -- The lock lets a pause and a resume at one time happen one after the other.
    select c.channel, c.paused_at is not null and (c.pause_until is null or c.pause_until > now()) as was_paused
      from refundd.channels c where c.channel = :channel for no key update
), resumed as (
    update refundd.channels c
       set paused_at = null, pause_until = null, pause_reason = null, paused_by = null,
           resumed_at = now(), resumed_by = :who, resume_reason = :reason
      from before b where c.channel = b.channel and b.was_paused
)
select was_paused from before
