-- end_pauses: ends the pauses whose time is over. The claim looks at their ends by itself; this statement writes down who
-- ended them, and when nobody does.
with of_channels as (
    update refundd.channels
       set paused_at = null, pause_until = null, pause_reason = null, paused_by = null,
           resumed_at = now(), resumed_by = 'refundd', resume_reason = 'its time was over'
     where paused_at is not null and pause_until <= now()
)
update refundd.suspensions
   set ended_at = now(), ended_by = 'refundd', end_reason = 'its time was over'
 where ended_at is null and until <= now()
