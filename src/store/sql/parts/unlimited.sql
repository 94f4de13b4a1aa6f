-- unlimited: the part that a claim without limits has after gate.sql, in the place of permits.sql: each claimable refund may be
-- leased, and no permit is spent. permits.sql would do the same with no permits, and cost 0.3 ms more for each claim.
timely as (
    select true as is_timely
), current as (
    select true as is_current, false as has_new_server
), given as (
    select null::bigint as id, null::bigint as place where false
), covered as (
    select c.id from claimable c join gate on gate.is_open
),
