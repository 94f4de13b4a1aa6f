-- Postgres's clock was set eight days forward, and the leading node dropped the ledger of today: each table had ended long ago by
-- that clock. A daily limit then began at number 1 again. From now on a step forward keeps evidence longer by the step, as it
-- already did with leases and graces.
-- And while the clock was ahead, the tables of its next days were made. Once the clock was right again, no table was made for any
-- day before those. Such tables no longer hold up the nearer ones.
-- Nodes of the last version call these functions as before. What they drop before the step is written down is not kept.

-- As before (migration 0015), for each span that has no table, and not from the last table on.
create or replace function refundd.make_spans(parent text, span text, besides text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    step  interval := '1 ' || span;
    first timestamp := date_trunc(span, now() at time zone 'UTC');
    edge  timestamp := first - step;
    key   name := (select a.attname from pg_partitioned_table p join pg_attribute a on a.attrelid = p.partrelid and a.attnum = p.partattrs[0]
                    where p.partrelid = format('refundd.%I', parent)::regclass);
    table_name text;
    is_late    boolean;
begin
    while edge < first + 2 * step loop
        edge := edge + step;
        continue when exists (
            select from refundd.spans(parent) s
             where s.until at time zone 'UTC' = edge + step
                -- The first table, which began with the schema, is longer.
                or (s.until at time zone 'UTC' > edge and pg_get_expr((select c.relpartbound from pg_class c where c.oid = format('refundd.%I', s.name)::regclass),
                                                                     format('refundd.%I', s.name)::regclass) like '%(MINVALUE)%'));
        -- Rows of that span stand among those of other spans already, and there they stay. A try to attach a table would lock and read
        -- all of those, in each call.
        execute format('select exists (select from refundd.%1$I where %2$I >= $1 and %2$I < $2)', format('%s_of_other_%ss', parent, span), key)
            into is_late using edge at time zone 'UTC', (edge + step) at time zone 'UTC';
        continue when is_late;
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
            -- Such a row came at this very moment.
            when check_violation then null;
            -- Another node made it at this very moment, or it was made while the clock was ahead.
            when duplicate_table or unique_violation then null;
            -- A longer table holds this span: the first one, which began with the schema.
            when invalid_object_definition then null;
            when lock_not_available then return false;
        end;
    end loop;
    return true;
end $$;

-- As before (migration 0027), without what the clock was set forward since a day ended. Of permits of other days, since the oldest.
create or replace function refundd.turn_permits(keep interval) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    kept    interval := refundd.permits_are_kept_for(keep);
    dropped integer;
    oldest  timestamptz;
begin
    perform set_config('lock_timeout', '100ms', true);
    perform refundd.make_spans('permits', 'day', '');
    select refundd.drop_spans(array_agg(s.name order by s.until)) into dropped
      from refundd.spans('permits') s where s.until < now() - kept - refundd.stepped_forward(s.until);
    select now() - kept - refundd.stepped_forward(min(p.window_start)) into oldest from refundd.permits_of_other_days p;
    delete from refundd.permits_of_other_days where ctid = any(array(
        select p.ctid from refundd.permits_of_other_days p where p.window_start < oldest limit 5000));
    return dropped;
end $$;

-- As before (migration 0041), without what the clock was set forward since a month ended.
create or replace function refundd.turn_attempts(
    keep interval, out done boolean, out dropped integer, out held_until timestamptz, out held_by bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    kept  interval := case when keep is not null then refundd.evidence_is_kept_for('attempts', keep) end;
    month record;
    over  name[];
    last  bigint;
begin
    for month in select s.name, s.until from refundd.spans('attempts') s
                  where s.until < now() - kept - refundd.stepped_forward(s.until) order by s.until loop
        held_by := refundd.open_refund_in(month.name);
        if held_by is not null then
            held_until := month.until;
            exit;
        end if;
        over := over || month.name;
        execute format('select greatest($1, max(a.id)) from refundd.%I a', month.name) into last using last;
    end loop;
    -- If another session uses one of these months, a later call drops it. A reader of so old a line loses nothing by that.
    update refundd.feed f set forgotten_until = last where f.forgotten_until < last;
    perform set_config('lock_timeout', '100ms', true);
    done := refundd.make_spans('attempts', 'month', ', primary key (id)');
    dropped := refundd.drop_spans(over);
    done := done and dropped = coalesce(cardinality(over), 0);
end $$;

-- As before (migration 0037), without what the clock was set forward since the oldest event.
create or replace function refundd.forget_events(keep interval) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    kept      interval := refundd.evidence_is_kept_for('events', keep);
    oldest    timestamptz := (select now() - kept - refundd.stepped_forward(min(e.at)) from refundd.events e);
    forgotten integer;
begin
    delete from refundd.events where event_id = any(array(
        select e.event_id from refundd.events e where e.at < oldest order by e.at limit 5000));
    get diagnostics forgotten = row_count;
    return forgotten;
end $$;
