-- clock_stepped: writes a step of Postgres's clock.
-- A step forward lengthens every present lease. A lease that began a moment after the step then lasts longer than
-- necessary. A claim that waits for a lock now takes its lease from the new clock. A step forward puts off the ends of
-- people's pauses, too, up to the last day that a pause may end on: a far end must not stop the step from being written.
-- Each step moves the ends of coolings that are not over, and the start of the climb after them. A cooling that began a moment after a step back
-- then ends too early, and the bank may ask again. One that began a moment after a step forward lasts longer by the step, but never
-- longer than a bank can ask for: 24 hours. Times in the past stay as they are: forged steps must not bring them to where the table
-- refuses them, which would stop the step from being written.
-- :last_step        the number of the step before this one
-- :witness          the clock that showed the step
-- :redis_ahead_us   how far Redis's clock is ahead now, or null
    with stepped as (
        insert into refundd.clock_steps (step, step_by, before, node, witness)
        values (:last_step + 1, :step_us * interval '1 microsecond',
                clock_timestamp() + greatest(-:step_us, 0) * interval '1 microsecond' + interval '1 second', :node, :witness)
            on conflict on constraint clock_steps_pkey do nothing
        returning step, step_by
    ), lengthened as (
        update refundd.refunds r set lease_until = r.lease_until + s.step_by
          from stepped s where r.state = 'sending' and s.step_by > interval '0'
    ), put_off as (
        update refundd.channels c
           set pause_until = case when f.is_forward and c.paused_at is not null and c.pause_until is not null
                                  then least(c.pause_until + f.step_by, timestamptz '9998-12-31 00:00:00+00') else c.pause_until end,
               -- A person may have ended the cooling after a step forward.
               cool_until = case when c.cool_until > f.was_now and (not f.is_forward or c.cool_until is distinct from c.cooling_ended_at)
                                 then least(c.cool_until + f.step_by, greatest(c.cool_until, f.longest)) else c.cool_until end,
               slow_since = case when c.slow_since > f.was_now then least(c.slow_since + f.step_by, greatest(c.slow_since, f.longest)) else c.slow_since end
          from (select s.step_by, s.step_by > interval '0' as is_forward, now() - greatest(s.step_by, interval '0') as was_now,
                       now() + interval '24 hours' as longest from stepped s) f
         where (f.is_forward and c.paused_at is not null and c.pause_until is not null) or c.cool_until > f.was_now or c.slow_since > f.was_now
    ), put_off_for_all as (
        update refundd.suspensions p set until = least(p.until + f.step_by, timestamptz '9998-12-31 00:00:00+00')
          from stepped f where p.channel = '*' and p.ended_at is null and p.until is not null and f.step_by > interval '0'
    ), noted as (
        update refundd.clock c
           set redis_ahead = coalesce(:redis_ahead_us::bigint * interval '1 microsecond', c.redis_ahead - s.step_by), noted_at = clock_timestamp()
          from stepped s
    )
    select step from stepped
