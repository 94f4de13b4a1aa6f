-- Two facts that nodes took from their own machine or their own file, and that all nodes must share.
--
-- Where a bank's day begins came from each node's time zone database. Two nodes with two databases saw two sets of
-- midnights, and a day got up to twice its number. The first node that needs a day writes its beginning here; every
-- node counts by that, and a permit of a day that begins at any other moment is refused.
--
-- How long the ledger of permits must be kept came from the file of the leading node. A leader that does not have a
-- limit, or has it with a shorter window, forgot permits that still counted for other nodes.
create table refundd.zone_days (
    zone         text        not null,
    day          date        not null,
    begins_at    timestamptz not null,
    node         text        not null,
    published_at timestamptz not null default clock_timestamp(),
    constraint zone_days_begin_where_they_were_first_said_to primary key (zone, day),
    constraint zone_days_begin_apart unique (zone, begins_at)
);

comment on table refundd.zone_days is 'Where the days of time zones begin, for limits with `time_zone`. The first node that publishes a day decides it for all.';
comment on column refundd.zone_days.zone is 'The time zone by its IANA name.';
comment on column refundd.zone_days.day is 'The day in that zone.';
comment on column refundd.zone_days.begins_at is 'The first moment of that day: the name of its window in refundd.permits.';
comment on column refundd.zone_days.node is 'The process that published it.';
comment on column refundd.zone_days.published_at is 'When it was published.';

-- How long a permit of a rule counts at the most, in us, as `Rule::memory`. A rule of another version counts for as
-- long as any rule can.
create function refundd.rule_memory(rule text) returns bigint
    language sql immutable strict parallel safe
return case when rule ~ '^[^ ]+ [0-9]+ [0-9]+ [0-9]+ [0-9]+ [0-9]+ [^ ]+$'
            then (split_part(rule, ' ', 3)::bigint + split_part(rule, ' ', 4)::bigint)
                 + case when split_part(rule, ' ', 6)::bigint > 0
                        then (split_part(rule, ' ', 3)::bigint + split_part(rule, ' ', 4)::bigint) / split_part(rule, ' ', 6)::bigint
                        else 0 end
            else 31 * 86400000000::bigint end;

-- How long permits are kept at the least: `keep`, or twice what the longest rule of any limit that has permits looks
-- back, be it the rule in force, the one that a node published last, or one that was given up and still matters.
create function refundd.permits_are_kept_for(keep interval) returns interval
    language sql stable
begin atomic
    select greatest(keep, max(2 * ruled.memory) * interval '1 microsecond')
      from (select l.limit_name,
                   greatest(refundd.rule_memory(l.rule), refundd.rule_memory(newest.rule),
                            case when l.older_at > now() - (l.older_us + refundd.rule_memory(l.rule)) * interval '1 microsecond'
                                 then refundd.rule_memory(l.rule) + l.older_us end) as memory
              from refundd.limits l
              left join lateral (select r.rule from refundd.limit_rules r
                                  where r.limit_name = l.limit_name order by r.published_at desc limit 1) newest on true) ruled
     where ruled.memory * interval '1 microsecond' > keep / 2
       and exists (select from refundd.permits p where p.limit_name = ruled.limit_name);
end;

comment on function refundd.permits_are_kept_for is 'How long permits are kept where a node asks to keep them for `keep`: never shorter than the rules of all nodes need.';
revoke execute on function refundd.permits_are_kept_for from public;

-- As before (migration 0013), with a floor of its own: whoever calls it, permits that may still count stay.
create or replace function refundd.turn_permits(keep interval) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    today   date := (now() at time zone 'UTC')::date;
    edge    date;
    oldest  record;
    dropped integer := 0;
begin
    keep := refundd.permits_are_kept_for(keep);
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

