-- clock_stepped: writes a step of Postgres's clock.
-- A step forward lengthens every present lease. A lease that began a moment after the step then lasts longer than
-- necessary. A claim that waits for a lock now takes its lease from the new clock. A step forward puts off the ends of
-- people's pauses, too, up to the last day that a pause may end on: a far end must not stop the step from being written.
-- A step back is taken off the ends of coolings, and off the start of the climb after them, where they lie ahead. A cooling that
-- began a moment after the step then ends too early, and the bank may ask again. Times in the past stay as they are: forged steps
-- must not bring them to where the table refuses them, which would stop the step from being written.
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
        update refundd.channels c set pause_until = least(c.pause_until + f.step_by, timestamptz '9998-12-31 00:00:00+00')
          from stepped f where c.paused_at is not null and c.pause_until is not null and f.step_by > interval '0'
    ), put_off_for_all as (
        update refundd.suspensions p set until = least(p.until + f.step_by, timestamptz '9998-12-31 00:00:00+00')
          from stepped f where p.channel = '*' and p.ended_at is null and p.until is not null and f.step_by > interval '0'
    ), brought_nearer as (
        update refundd.channels c
           set cool_until = case when c.cool_until > now() then c.cool_until + b.step_by else c.cool_until end,
               slow_since = case when c.slow_since > now() then c.slow_since + b.step_by else c.slow_since end
          from stepped b where b.step_by < interval '0' and (c.cool_until > now() or c.slow_since > now())
    ), noted as (
        update refundd.clock c
           set redis_ahead = coalesce(:redis_ahead_us::bigint * interval '1 microsecond', c.redis_ahead - s.step_by), noted_at = clock_timestamp()
          from stepped s
    )
    select step from stepped
