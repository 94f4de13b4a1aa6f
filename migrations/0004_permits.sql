-- Redis proposes, Postgres disposes: a permit is spent by writing its number here, in the statement
-- that leases the refund. A Redis that forgot and hands out a number again is refused by this key.
create table refundd.permits (
    limit_name   text        not null,
    window_start timestamptz not null,
    ordinal      integer     not null,
    refund_id    bigint      not null,
    node         text        not null,
    constraint permits_are_spent_once primary key (limit_name, window_start, ordinal),
    constraint permits_ordinals_count_from_one check (ordinal >= 1)
);

comment on table refundd.permits is 'Every numbered permit that was spent: the proof of the pace in any past period.';
comment on column refundd.permits.limit_name is 'The name in the configuration file, [limit.NAME].';
comment on column refundd.permits.window_start is 'The aligned window, named by its first microsecond on Redis''s clock.';
comment on column refundd.permits.ordinal is 'Which permit of that window, from 1.';
comment on column refundd.permits.refund_id is 'The refund it was spent for; a permit whose refund was no longer ready stays spent.';
comment on column refundd.permits.node is 'The process that spent it.';
