-- Grace, key retention and leases are periods, and were measured by Postgres's clock alone: when that was set forward, or
-- another server took over whose clock is ahead, they were over at once. Nodes now compare it with their own monotonic
-- clocks and with Redis's, and write a step down here. A period that began before a step is measured without it.
-- Nodes that do not know these tables go on as before.
create table refundd.clock_steps (
    step    bigint      not null,
    step_by interval    not null,
    before  timestamptz not null,
    seen_at timestamptz not null default clock_timestamp(),
    node    text        not null,
    witness text        not null,
    constraint clock_steps_pkey primary key (step),
    constraint clock_steps_are_numbered_from_one check (step > 0),
    constraint clock_steps_go_somewhere check (step_by <> interval '0'),
    constraint clock_steps_witness_is_known check (witness in ('monotonic', 'redis'))
);

comment on table refundd.clock_steps is 'Each step of Postgres''s clock that a node saw. Rows are only ever added.';
comment on column refundd.clock_steps.step is 'One more than the step before; so two nodes that see the same step write it once.';
comment on column refundd.clock_steps.step_by is 'How far the clock went too far; negative where it was set back.';
comment on column refundd.clock_steps.before is 'A period that began at or before this time may have begun before the step.';
comment on column refundd.clock_steps.seen_at is 'When it was written down, by the clock after the step.';
comment on column refundd.clock_steps.node is 'The node that saw it, and its process.';
comment on column refundd.clock_steps.witness is 'The clock that it was seen by: the node''s monotonic one, or Redis''s.';

create table refundd.clock (
    is_only     boolean     not null default true,
    redis_ahead interval    not null,
    noted_at    timestamptz not null default clock_timestamp(),
    constraint clock_pkey primary key (is_only),
    constraint clock_is_one_row check (is_only)
) with (fillfactor = 50);

comment on table refundd.clock is 'One row: how Redis''s clock and Postgres''s stood to each other, for nodes that were not there.';
comment on column refundd.clock.is_only is 'Always true.';
comment on column refundd.clock.redis_ahead is 'How far Redis''s clock was ahead of Postgres''s.';
comment on column refundd.clock.noted_at is 'When that was measured.';

-- What has to be waited for must not seem over: steps forward are taken off. As its owner, like the next one: nodes of
-- the last version call may_be_resent() below before config/node-role.sql is run again.
create function refundd.stepped_forward(since timestamptz) returns interval
    language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
return (select coalesce(sum(s.step_by), interval '0') from refundd.clock_steps s
         where s.step_by > interval '0' and s.before >= since);

comment on function refundd.stepped_forward is 'How far the clock was set forward, all in all, since a time on it.';

-- What must be over must not seem to last: steps back are added.
create function refundd.stepped_back(since timestamptz) returns interval
    language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
return (select coalesce(-sum(s.step_by), interval '0') from refundd.clock_steps s
         where s.step_by < interval '0' and s.before >= since);

comment on function refundd.stepped_back is 'How far the clock was set back, all in all, since a time on it.';

-- As before, at a time that a node has checked, and without what the clock was set back.
create function refundd.may_be_resent(
    first_sent_at timestamptz, attempts integer, deadline_at timestamptz, resend_within interval, most_sends integer, at timestamptz
) returns boolean
    language sql stable parallel safe
return coalesce(first_sent_at + resend_within > at + refundd.stepped_back(first_sent_at)
                and attempts < most_sends and (deadline_at is null or deadline_at > at), false);

create or replace function refundd.may_be_resent(
    first_sent_at timestamptz, attempts integer, deadline_at timestamptz, resend_within interval, most_sends integer
) returns boolean
    language sql stable parallel safe
return coalesce(first_sent_at + resend_within > now() + refundd.stepped_back(first_sent_at)
                and attempts < most_sends and (deadline_at is null or deadline_at > now()), false);
