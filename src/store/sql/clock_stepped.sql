-- clock_stepped: writes down a step of Postgres's clock.
-- What is leased now was leased before the step, or a moment after it, and then waits longer than it must.
-- $1 the last step before this one  $2 by how much, in us  $3 node  $4 witness  $5 how far Redis's clock is ahead now, in us
    with stepped as (
        insert into refundd.clock_steps (step, step_by, before, node, witness)
        values ($1 + 1, $2 * interval '1 microsecond', clock_timestamp() + greatest(-$2, 0) * interval '1 microsecond' + interval '1 second', $3, $4)
            on conflict on constraint clock_steps_pkey do nothing
        returning step, step_by
    ), lengthened as (
        update refundd.refunds r set lease_until = r.lease_until + s.step_by
          from stepped s where r.state = 'sending' and s.step_by > interval '0'
    ), noted as (
        update refundd.clock c
           set redis_ahead = coalesce($5::bigint * interval '1 microsecond', c.redis_ahead - s.step_by), noted_at = clock_timestamp()
          from stepped s
    )
    select step from stepped
