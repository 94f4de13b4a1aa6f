-- The ledger of permits grows by a row for every send, and is forgotten a day at a time: a day's table is dropped
-- in a moment, while deleting its rows cost as much again as writing them had, and left the gaps behind.
alter table refundd.permits rename to permits_before;
alter table refundd.permits_before rename constraint permits_are_spent_once to permits_before_are_spent_once;
alter table refundd.permits_before validate constraint permits_went_to_somebody;

create table refundd.permits (
    limit_name   text        not null,
    window_start timestamptz not null,
    ordinal      integer     not null,
    refund_id    bigint,
    node         text        not null,
    caller       text,
    spent_at     timestamptz default clock_timestamp(),
    constraint permits_are_spent_once primary key (limit_name, window_start, ordinal),
    constraint permits_ordinals_count_from_one check (ordinal >= 1),
    constraint permits_went_to_somebody check (refund_id is not null or caller is not null)
) partition by range (window_start);

comment on table refundd.permits is 'Every permit that was spent: the proof of the pace in any past period. One table for each day, by window_start in UTC.';
comment on column refundd.permits.limit_name is 'The name in the configuration file, [limit.NAME].';
comment on column refundd.permits.window_start is 'fixed_window: the window''s first microsecond; paced: the slot''s; the others: when the permit opened. Redis''s clock.';
comment on column refundd.permits.ordinal is 'Which permit of that window, slot or moment, from 1.';
comment on column refundd.permits.refund_id is 'The refund it was spent for, whether or not it turned out to be ready; null for another service.';
comment on column refundd.permits.node is 'The process that spent it.';
comment on column refundd.permits.caller is 'The service it was granted to over HTTP; null for a refund.';
comment on column refundd.permits.spent_at is 'When it was written down, by Postgres''s clock.';

-- What there is so far is one more day, a long one: up to the first midnight after all of it. It is named by that
-- midnight, as every day is.
do $$
declare
    edge date;
begin
    select (date_trunc('day', greatest(now(), max(window_start)) at time zone 'UTC'))::date + 1 into edge from refundd.permits_before;
    execute format('alter table refundd.permits_before rename to permits_until_%s', to_char(edge, 'YYYYMMDD'));
    execute format('alter table refundd.permits attach partition refundd.permits_until_%s for values from (minvalue) to (%L)',
                   to_char(edge, 'YYYYMMDD'), edge::timestamp at time zone 'UTC');
end $$;

-- What no day was made for: a claim never waits for a table. Empty, unless no node led for two days.
create table refundd.permits_of_other_days partition of refundd.permits default;
comment on table refundd.permits_of_other_days is 'Permits of days that no table was made for in time.';

-- Makes the tables of the next days, and forgets the days that ended longer ago than `keep`; answers how many it
-- dropped. What stands in somebody's way is left for the next call: nobody waits here for long, for everybody who
-- spends permits would wait behind.
create function refundd.turn_permits(keep interval) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    today   date := (now() at time zone 'UTC')::date;
    edge    date;
    oldest  record;
    dropped integer := 0;
begin
    perform set_config('lock_timeout', '100ms', true);
    select max(to_date(right(c.relname, 8), 'YYYYMMDD')) into edge
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'refundd.permits'::regclass and c.relname ~ '^permits_until_[0-9]{8}$';
    edge := greatest(edge, today);
    while edge < today + 3 loop
        begin
            -- Made apart and then attached: only that way nobody who inserts has to wait.
            execute format('create table refundd.permits_until_%s (like refundd.permits including all)', to_char(edge + 1, 'YYYYMMDD'));
            execute format('alter table refundd.permits attach partition refundd.permits_until_%s for values from (%L) to (%L)',
                           to_char(edge + 1, 'YYYYMMDD'), edge::timestamp at time zone 'UTC', (edge + 1)::timestamp at time zone 'UTC');
        exception
            -- Permits of that day stand among those of other days already, and there they stay.
            when check_violation then null;
            -- Another node made it at this very moment.
            when duplicate_table then null;
            when lock_not_available then exit;
        end;
        edge := edge + 1;
    end loop;
    for oldest in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'refundd.permits'::regclass
           and case when c.relname ~ '^permits_until_[0-9]{8}$'
                    then to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' < now() - keep end
         order by c.relname
    loop
        begin
            execute format('drop table refundd.%I', oldest.relname);
            dropped := dropped + 1;
        exception when lock_not_available then exit;
        end;
    end loop;
    delete from refundd.permits_of_other_days where ctid = any(array(
        select p.ctid from refundd.permits_of_other_days p where p.window_start < now() - keep limit 5000));
    return dropped;
end $$;

comment on function refundd.turn_permits is 'Makes the tables of the ledger''s next days, and drops those that ended longer ago than `keep`. The leading node calls it.';
revoke execute on function refundd.turn_permits from public;

select refundd.turn_permits('7 days');

create function refundd.permits_are_never_changed() returns trigger language plpgsql as $$
begin
    raise exception 'refundd.permits is append-only: % is refused', lower(tg_op)
        using errcode = 'RD003', hint = 'Permits are forgotten a day at a time, after [recovery] keep_permits.';
end $$;

create trigger permits_are_never_changed before update or delete or truncate on refundd.permits
    for each statement execute function refundd.permits_are_never_changed();
