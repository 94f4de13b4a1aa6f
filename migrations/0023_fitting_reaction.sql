-- One refusal of a bank cost half of the rate for a while, and five seconds of silence. The reaction now fits: a
-- first refusal lowers the rate by a tenth, repeated ones by three tenths each (the decrease of CUBIC, RFC 9438), and
-- the way back is quick up to the share at which the bank refused, and careful beyond. See docs/limits.md.
-- Nodes of the last version write slow_percent and slow_since alone; with the columns below empty, or left over from
-- before, the share is only another one for a while.
alter table refundd.channels
    add column slow_ceiling smallint,
    add column slow_step_us bigint,
    add column refusals smallint not null default 0,
    add constraint channels_slow_ceiling_is_a_share check (slow_ceiling between 1 and 100) not valid,
    add constraint channels_slow_step_is_a_span check (slow_step_us > 0) not valid,
    add constraint channels_refusals_are_counted check (refusals >= 0) not valid;

comment on column refundd.channels.slow_ceiling is 'The share up to which the rate climbs back quickly, in percent; null where no node of this version has slowed it.';
comment on column refundd.channels.slow_step_us is 'The steps in which it climbs back, in us: the time between two permits of the slowed limit, 50 ms at least.';
comment on column refundd.channels.refusals is 'How many refusals in succession asked for slower, each of a request that began after the pause before.';

-- How many steps have passed since the rate began to climb back.
create function refundd.slow_steps(step_us bigint, since timestamptz) returns bigint
    language sql stable parallel safe
return floor(greatest(0, extract(epoch from now() - since)) * 1000000 / coalesce(step_us, 1000000))::bigint;

-- The share of the rate in percent, in notches of five; null at the full rate. Up to the ceiling a point for every two
-- steps; beyond, the square of the hundreds of steps, so that it is careful first and quick in the end.
create function refundd.slow_share(percent smallint, ceiling smallint, step_us bigint, since timestamptz) returns integer
    language sql stable parallel safe
return (select reached - reached % 5 from (
            select case when percent + steps / 2 < top then percent + steps / 2
                        else top + power(least(1000, greatest(0, steps - 2 * greatest(0, top - percent))) / 100.0, 2) end::integer as reached
              from (select coalesce(ceiling, 100)::bigint as top, refundd.slow_steps(step_us, since) as steps) s
             where percent is not null) climbed
         where reached < 100);
