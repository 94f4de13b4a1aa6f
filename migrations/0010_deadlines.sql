-- Deadlines: a refund that cannot be sent in time should be known while something can still be done.
-- The leading node compares each waiting refund's place in line with its channel's rate.
alter table refundd.channels
    add column late integer not null default 0,
    add column late_from timestamptz,
    add constraint channels_late_says_from_when check ((late = 0) = (late_from is null)) not valid;

comment on column refundd.channels.late is 'Refunds that wait and will pass their deadline before it is their turn, at the full rate of the channel''s limits.';
comment on column refundd.channels.late_from is 'The first of those deadlines; null while there is none.';
