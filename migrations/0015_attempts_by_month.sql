-- The journal grows by a row for every request to a bank. It is evidence, and stays for ever unless
-- [recovery] keep_attempts asks for less; then it is forgotten a month at a time, by dropping that month's table.
-- A new journal takes the place of the one there is, which becomes its first month, a long one. That reads the
-- journal twice (a second for some one and a half million rows), and everybody who reads or writes refunds waits for it:
-- the journal's foreign key belongs to them, too. Taken in the order in which settling takes them.
lock table refundd.refunds, refundd.attempts in access exclusive mode;

alter table refundd.attempts rename to attempts_before;
alter table refundd.attempts_before alter column id drop identity;
alter table refundd.attempts_before rename constraint attempts_pkey to attempts_before_pkey;
alter index refundd.attempts_of_a_refund rename to attempts_before_of_a_refund;
alter index refundd.attempts_by_time rename to attempts_before_by_time;

-- Its key is each month's own: a key of the whole would have to hold finished_at, and be made anew for all that is there.
create table refundd.attempts (
    id           bigint      not null generated always as identity,
    refund_id    bigint      not null,
    channel      text        not null,
    kind         text        not null,
    number       integer     not null,
    lease_epoch  bigint      not null,
    node         text        not null,
    permit       text,
    started_at   timestamptz,
    finished_at  timestamptz not null default now(),
    outcome      text        not null,
    moved_to     text,
    status       smallint,
    code         text,
    message      text,
    constraint attempts_belong_to_a_refund foreign key (refund_id) references refundd.refunds (id),
    constraint attempts_kind_is_known check (kind in ('send', 'inquiry', 'manual')),
    constraint attempts_outcome_is_known check (outcome in
        ('succeeded', 'accepted', 'rejected', 'not_executed', 'unknown', 'review', 'decided')),
    constraint attempts_message_is_bounded check (length(message) <= 500)
) partition by range (finished_at);

comment on table refundd.attempts is 'Append-only evidence of every request to a bank and every decision of a person. One table for each month, by finished_at in UTC.';
comment on column refundd.attempts.id is 'In order of writing.';
comment on column refundd.attempts.refund_id is 'The refund.';
comment on column refundd.attempts.channel is 'Its channel, repeated here to count by.';
comment on column refundd.attempts.kind is 'send, inquiry, or manual: a person''s decision.';
comment on column refundd.attempts.number is 'The Refundd-Attempt header of a send; of an inquiry, which one it was; 0 for manual.';
comment on column refundd.attempts.lease_epoch is 'The lease it was made under.';
comment on column refundd.attempts.node is 'The process that made it, or the person who decided.';
comment on column refundd.attempts.permit is 'The permits it spent, as limit@window#ordinal, comma between.';
comment on column refundd.attempts.started_at is 'When its first byte was written; null if none was.';
comment on column refundd.attempts.finished_at is 'When the outcome was written down.';
comment on column refundd.attempts.outcome is 'What it came to.';
comment on column refundd.attempts.moved_to is 'The state the refund moved to; null when the answer came too late and moved nothing.';
comment on column refundd.attempts.status is 'The HTTP status, if there was one.';
comment on column refundd.attempts.code is 'Our short name for what happened.';
comment on column refundd.attempts.message is 'At most 500 characters for people, without account data.';

create index attempts_of_a_refund on refundd.attempts (refund_id);
create index attempts_by_time on refundd.attempts using brin (finished_at) with (pages_per_range = 32, autosummarize = on);

create trigger attempts_are_never_changed before update or delete or truncate on refundd.attempts
    for each statement execute function refundd.attempts_are_never_changed();

-- What there is so far ends with the month in which the last of it was written; it is named by that end, as every month is.
do $$
declare
    edge  timestamp;
    right_ record;
begin
    select date_trunc('month', greatest(now(), max(finished_at)) at time zone 'UTC') + interval '1 month' into edge from refundd.attempts_before;
    execute format('alter table refundd.attempts_before rename to attempts_until_%s', to_char(edge, 'YYYYMMDD'));
    execute format('alter table refundd.attempts attach partition refundd.attempts_until_%s for values from (minvalue) to (%L)',
                   to_char(edge, 'YYYYMMDD'), edge at time zone 'UTC');
    execute format('alter table refundd.attempts alter column id restart with %s',
                   (select coalesce(max(id), 0) + 1 from refundd.attempts));
    -- Whoever could read it still can.
    for right_ in
        select a.privilege_type, case a.grantee when 0 then 'public' else a.grantee::regrole::text end as grantee
          from pg_inherits i join pg_class c on c.oid = i.inhrelid, aclexplode(c.relacl) a
         where i.inhparent = 'refundd.attempts'::regclass and a.grantee <> c.relowner
    loop
        execute format('grant %s on refundd.attempts to %s', right_.privilege_type, right_.grantee);
    end loop;
end $$;

-- What no month was made for: settling never waits for a table. Empty, unless no node led for two months; never dropped.
create table refundd.attempts_of_other_months partition of refundd.attempts (primary key (id)) default;
comment on table refundd.attempts_of_other_months is 'Attempts of months that no table was made for in time.';
create trigger attempts_are_never_changed before update or delete or truncate on refundd.attempts_of_other_months
    for each statement execute function refundd.attempts_are_never_changed();

-- The tables of the ledger (one for each day) and of the journal (one for each month), by when they end.
create function refundd.spans(parent text) returns table (name name, until timestamptz)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC'
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = to_regclass('refundd.' || parent)
       and c.relname ~ '_until_[0-9]{8}$'
     order by 1
$$;

-- Makes them as far as two spans after this one; answers whether all are there. What stands in somebody's way is left
-- for the next call: nobody waits here for long, for everybody who writes would wait behind.
create function refundd.make_spans(parent text, span text, besides text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    step  interval := '1 ' || span;
    first timestamp := date_trunc(span, now() at time zone 'UTC');
    edge  timestamp;
    table_name text;
begin
    select greatest(max(s.until) at time zone 'UTC', first) into edge from refundd.spans(parent) s;
    while edge < first + 3 * step loop
        table_name := format('%s_until_%s', parent, to_char(edge + step, 'YYYYMMDD'));
        begin
            -- Made apart and then attached, so that those who insert need not wait; those who write refunds do for a
            -- moment when a month of the journal, with its foreign key, is attached.
            execute format('create table refundd.%I (like refundd.%I including all excluding identity %s)', table_name, parent, besides);
            execute format('create trigger %I before update or delete or truncate on refundd.%I
                            for each statement execute function refundd.%1$I()', parent || '_are_never_changed', table_name);
            execute format('alter table refundd.%I attach partition refundd.%I for values from (%L) to (%L)',
                           parent, table_name, edge at time zone 'UTC', (edge + step) at time zone 'UTC');
        exception
            -- Rows of that span stand among those of other spans already, and there they stay.
            when check_violation then null;
            -- Another node made it at this very moment.
            when duplicate_table or unique_violation then null;
            when lock_not_available then return false;
        end;
        edge := edge + step;
    end loop;
    return true;
end $$;

-- Drops tables until one is in use; answers how many it dropped.
create function refundd.drop_spans(names name[]) returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    table_name name;
    dropped    integer := 0;
begin
    foreach table_name in array coalesce(names, '{}') loop
        begin
            execute format('drop table refundd.%I', table_name);
            dropped := dropped + 1;
        exception
            -- Another node dropped it at this very moment.
            when undefined_table then null;
            when lock_not_available then exit;
        end;
    end loop;
    return dropped;
end $$;

create or replace function refundd.turn_permits(keep interval) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    dropped integer;
begin
    perform set_config('lock_timeout', '100ms', true);
    perform refundd.make_spans('permits', 'day', '');
    select refundd.drop_spans(array_agg(s.name order by s.until)) into dropped
      from refundd.spans('permits') s where s.until < now() - keep;
    delete from refundd.permits_of_other_days where ctid = any(array(
        select p.ctid from refundd.permits_of_other_days p where p.window_start < now() - keep limit 5000));
    return dropped;
end $$;

-- A refund that did not end and of which that month holds evidence. Those that did not end stand in small indexes;
-- whoever was saved after the month has none in it, so that a long backlog is passed by without a look at its rows.
create function refundd.open_refund_in(month name) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    found_id bigint;
begin
    execute format(
        'select o.id
           from (select r.id from refundd.refunds r where r.state in (''accepted'', ''unknown'', ''review'')
                 union all select r.id from refundd.refunds r where r.state = ''sending''
                 union all select r.id from refundd.refunds r where r.state = ''ready'') o
          where o.id <= (select max(a.refund_id) from refundd.%1$I a)
            -- By index, one after the other, and not by a join of two long tables.
            and exists (select from refundd.%1$I a where a.refund_id = o.id offset 0)
          limit 1', month) into found_id;
    return found_id;
end $$;

-- Makes the tables of the journal's next months, and drops those that ended longer ago than `keep` (null: none), the
-- oldest first, up to one with evidence of a refund that did not end. Looking for that may take a while and holds nothing.
-- Done it is when nothing was left for the next call.
create function refundd.turn_attempts(
    keep interval, out done boolean, out dropped integer, out held_until timestamptz, out held_by bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    month record;
    over  name[];
begin
    for month in select s.name, s.until from refundd.spans('attempts') s where s.until < now() - keep order by s.until loop
        held_by := refundd.open_refund_in(month.name);
        if held_by is not null then
            held_until := month.until;
            exit;
        end if;
        over := over || month.name;
    end loop;
    perform set_config('lock_timeout', '100ms', true);
    done := refundd.make_spans('attempts', 'month', ', primary key (id)');
    dropped := refundd.drop_spans(over);
    done := done and dropped = coalesce(cardinality(over), 0);
end $$;

-- From when on the journal is whole; null while nothing of it was dropped.
create function refundd.attempts_since() returns timestamptz
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when bool_and(bound.first is not null) then min(bound.first) end
      from refundd.spans('attempts') s
      join pg_class c on c.oid = to_regclass(format('refundd.%I', s.name)),
           lateral (select substring(pg_get_expr(c.relpartbound, c.oid) from '^FOR VALUES FROM \(''([^'']+)''\)')::timestamptz as first) bound
$$;

-- Whether the journal has what a send came to, written by a try whose commit was not seen. A function, so that only
-- who asks it opens all those tables.
create function refundd.send_is_kept(refund bigint, epoch bigint) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return exists (select from refundd.attempts a
                    where a.refund_id = refund and a.lease_epoch = epoch and a.kind = 'send' and a.code <> 'lease_lapsed');
end $$;

comment on function refundd.spans is 'The tables of permits or attempts that hold one day or month each, and when those end.';
comment on function refundd.make_spans is 'Makes the tables of the next days or months.';
comment on function refundd.drop_spans is 'Drops such tables, as long as none of them is in use.';
comment on function refundd.open_refund_in is 'A refund that did not end and of which this table of the journal holds evidence, if there is one.';
comment on function refundd.turn_attempts is 'Makes the tables of the journal''s next months, and drops those that ended longer ago than `keep`; tells which refund holds the oldest back. The leading node calls it.';
comment on function refundd.attempts_since is 'From when on the journal is whole; null while nothing of it was dropped.';
comment on function refundd.send_is_kept is 'Whether the journal has the outcome of the send under this lease.';

revoke execute on function refundd.spans, refundd.make_spans, refundd.drop_spans, refundd.turn_permits, refundd.open_refund_in,
    refundd.turn_attempts, refundd.attempts_since, refundd.send_is_kept from public;

select refundd.turn_attempts(null);
