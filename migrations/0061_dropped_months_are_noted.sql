-- `refundd prove --journal` believed that a line is missing rightly if the retention of today allows to drop its month. When the owner
-- raised the retention, months that had been dropped under the shorter one counted as lines that somebody had removed. From now on the
-- function that drops a month notes that in the same transaction: which month, when, and how long the journal was kept.
-- Nodes of the last version call this function, too, and so note what they drop.
create table refundd.dropped_months (
    month_begins timestamptz,
    month_ends   timestamptz not null,
    dropped_at   timestamptz not null default now(),
    kept         interval    not null,
    noted_later  boolean     not null default false,
    constraint dropped_months_pkey primary key (month_ends, dropped_at)
);

comment on table refundd.dropped_months is 'Append-only: each month of the journal that refundd dropped. refundd.turn_attempts() writes it, and `refundd prove --journal` reads it.';
comment on column refundd.dropped_months.month_begins is 'The beginning of the month, in UTC. Null: nothing before the end is left; so the first table, and all that was dropped before migration 61.';
comment on column refundd.dropped_months.month_ends is 'The end of the month, in UTC.';
comment on column refundd.dropped_months.dropped_at is 'When it was dropped, by Postgres''s clock; of what was dropped before migration 61, when that was noted.';
comment on column refundd.dropped_months.kept is 'How long the journal was kept then: the longer one of what the node asked for and of refundd.retention.';
comment on column refundd.dropped_months.noted_later is 'Noted by migration 61, for all that was dropped before it. Nobody noted when that was.';

create function refundd.dropped_months_are_never_changed() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception 'refundd.dropped_months is append-only: % is refused', lower(tg_op)
        using errcode = 'RD003', hint = 'Evidence is only ever added to.';
end $$;

create trigger dropped_months_are_never_changed before update or delete or truncate on refundd.dropped_months
    for each statement execute function refundd.dropped_months_are_never_changed();

revoke execute on function refundd.dropped_months_are_never_changed from public;

-- Of earlier drops nobody knows when they were made. The retention of this moment was the last one that they can have had.
insert into refundd.dropped_months (month_ends, kept, noted_later)
select refundd.attempts_since(), refundd.evidence_is_kept_for('attempts', '1 second'), true
 where refundd.attempts_since() is not null;

-- As before (migration 0059), and each dropped month is noted.
create or replace function refundd.turn_attempts(
    keep interval, out done boolean, out dropped integer, out held_until timestamptz, out held_by bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    kept   interval := case when keep is not null then refundd.evidence_is_kept_for('attempts', keep) end;
    month  record;
    over   name[];
    begun  timestamptz[];
    ended  timestamptz[];
    last   bigint;
begin
    for month in select s.name, s.until,
                        -- The first table, which began with the schema, is longer.
                        case when pg_get_expr(c.relpartbound, c.oid) not like '%(MINVALUE)%'
                             then (s.until at time zone 'UTC' - interval '1 month') at time zone 'UTC' end as begins
                   from refundd.spans('attempts') s join pg_class c on c.oid = to_regclass(format('refundd.%I', s.name))
                  where s.until < now() - kept - refundd.stepped_forward(s.until) order by s.until loop
        held_by := refundd.open_refund_in(month.name);
        if held_by is not null then
            held_until := month.until;
            exit;
        end if;
        over := over || month.name;
        begun := array_append(begun, month.begins);
        ended := ended || month.until;
        execute format('select greatest($1, max(a.id)) from refundd.%I a', month.name) into last using last;
    end loop;
    -- If another session uses one of these months, a later call drops it. A reader of so old a line loses nothing by that.
    update refundd.feed f set forgotten_until = last where f.forgotten_until < last;
    perform set_config('lock_timeout', '100ms', true);
    done := refundd.make_spans('attempts', 'month', ', primary key (id)');
    dropped := 0;
    for nth in 1 .. coalesce(cardinality(over), 0) loop
        begin
            execute format('drop table refundd.%I', over[nth]);
            insert into refundd.dropped_months (month_begins, month_ends, kept) values (begun[nth], ended[nth], kept);
            dropped := dropped + 1;
        exception
            -- Another node dropped it at this very moment.
            when undefined_table then null;
            when lock_not_available then exit;
        end;
    end loop;
    done := done and dropped = coalesce(cardinality(over), 0);
end $$;

do $$
declare
    role regrole;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner) loop
        execute format('grant select on refundd.dropped_months to %s', role);
    end loop;
end $$;
