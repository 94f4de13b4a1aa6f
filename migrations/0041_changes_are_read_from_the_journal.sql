-- Programs follow what becomes of refunds by GET /v1/changes, and by webhooks where the configuration has [notify]. Both read the
-- journal: it has a line for nearly every change of state already, so a plain send writes nothing more. This migration adds
-- the lines that the journal lacked, and says up to which line a reader may go on without missing one:
-- docs/decisions/0027-changes-are-read-from-the-journal.md.

-- Recovery fails refunds whose deadline passed and brings refunds to review. It wrote no line. Now it does, by the function
-- below. Nodes of the last version go on without one. Every line there is keeps the wider check, so none is read.
alter table refundd.attempts
    drop constraint attempts_kind_is_known,
    add constraint attempts_kind_is_known check (kind in ('send', 'inquiry', 'manual', 'recovery')) not valid;

comment on column refundd.attempts.kind is 'send, inquiry; manual: a person''s decision, proposal or withdrawal; recovery: a move of refundd''s recovery, without a request.';

create function refundd.recovery_moved(r refundd.refunds, why text) returns void
language sql volatile set search_path = pg_catalog, pg_temp
begin atomic
    insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
    values (r.id, r.channel, 'recovery', 0, r.lease_epoch, 'refundd',
            case r.state when 'failed' then 'not_executed' else 'review' end, r.state, why, left(r.reason, 500));
end;

comment on function refundd.recovery_moved is 'Writes to the journal that recovery moved this refund, and why. The statements of recovery call it for each refund that they move.';

create table refundd.feed (
    is_the_only_row boolean     not null default true,
    forgotten_until bigint      not null,
    delivered_until bigint,
    delivered_by    text,
    leased_until    timestamptz,
    constraint feed_pkey primary key (is_the_only_row),
    constraint feed_is_one_row check (is_the_only_row),
    constraint feed_is_delivered_under_a_lease
        check ((delivered_until is null) = (delivered_by is null) and (delivered_until is null) = (leased_until is null))
);

comment on table refundd.feed is 'How far the feed of changes goes back, and how far it was delivered by webhooks. One row.';
comment on column refundd.feed.is_the_only_row is 'Always true.';
comment on column refundd.feed.forgotten_until is 'The journal has dropped lines with ids up to this. A reader that stands before it has missed some.';
comment on column refundd.feed.delivered_until is 'The receiver of webhooks has taken every change up to this line; null until a node delivers for the first time.';
comment on column refundd.feed.delivered_by is 'The process that delivers, or the last one that did.';
comment on column refundd.feed.leased_until is 'Until then no other process delivers.';

-- Where months were dropped before this migration, the first line that is left says where the journal begins.
insert into refundd.feed (forgotten_until)
select case when refundd.attempts_since() is null then 0 else coalesce((select min(a.id) - 1 from refundd.attempts a), 0) end;

-- As before (migration 0027), and notes the last line that is dropped in the same commit.
create or replace function refundd.turn_attempts(
    keep interval, out done boolean, out dropped integer, out held_until timestamptz, out held_by bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    kept  interval := case when keep is not null then refundd.evidence_is_kept_for('attempts', keep) end;
    month record;
    over  name[];
    last  bigint;
begin
    for month in select s.name, s.until from refundd.spans('attempts') s where s.until < now() - kept order by s.until loop
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

-- Ids are given before commits, so a line may appear after lines with higher ids. This answers what a reader needs to wait for
-- such lines, in the order in which sealing looks (migration 0031): first the last id, then who may still commit a line up to it.
create function refundd.feed_reach(out last_id bigint, out writers text[], out sealed_until bigint, out forgotten_until bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    select s.last_value - case when s.is_called then 0 else 1 end into last_id from refundd.attempts_id_seq s;
    writers := refundd.journal_writers();
    select g.until_id into sealed_until from refundd.sealing g;
    select f.forgotten_until into forgotten_until from refundd.feed f;
end $$;

comment on function refundd.feed_reach is 'The last id of the journal, the transactions that may still commit a line up to it, the line up to which every line is sealed, and the last line that was dropped.';

-- One process delivers at a time. The first call of all begins at what is sealed, so a journal of years is not delivered.
create function refundd.deliver(process text, lease interval, up_to bigint) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    til bigint;
begin
    update refundd.feed f
       set delivered_until = greatest(coalesce(f.delivered_until, (select g.until_id from refundd.sealing g)), up_to),
           delivered_by = process, leased_until = now() + lease
     where coalesce(process, '') <> ''
       -- A lease that ends later than any process asks for is from a clock that was set back.
       and (f.delivered_by = process or f.leased_until is null or f.leased_until <= now() or f.leased_until > now() + interval '5 minutes')
       -- Lines beyond the end of the journal were delivered from another state of this database. The process begins anew.
       and (up_to is null or up_to <= (select s.last_value from refundd.attempts_id_seq s))
    returning f.delivered_until into til;
    return til;
end $$;

comment on function refundd.deliver is 'Takes or keeps the lease to deliver changes, and notes that the receiver has taken all changes up to `up_to`, if that is given. Answers up to where they are delivered; null while another process has the lease, and where the journal ends before `up_to`.';

revoke execute on function refundd.recovery_moved, refundd.feed_reach, refundd.deliver from public;

-- A role of nodes may call them from now on, also before config/node-role.sql is run again, so that recovery does not stop.
do $$
declare
    kept record;
begin
    for kept in
        select distinct a.grantee::regrole as role
          from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
         where n.oid = 'refundd.decide'::regproc and a.grantee not in (0, n.proowner)
    loop
        execute format('grant execute on function refundd.recovery_moved, refundd.feed_reach, refundd.deliver to %s', kept.role);
        execute format('grant select on refundd.feed to %s', kept.role);
    end loop;
end $$;
