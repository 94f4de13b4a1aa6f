-- The role of nodes could erase evidence: `select refundd.turn_attempts('-100 years')` dropped the journal, and
-- turn_permits() the ledger. The role could also settle a refund that waits for a person, without a line in the journal,
-- and write such a line itself. Now the owner of the schema says how long evidence stays at the least, a decision is made by one
-- function that writes the journal, and no function of this schema can be executed by everybody.
-- Nodes of the last version go on as before. A role is bound to the function for decisions as soon as it may execute it,
-- that is when config/node-role.sql is run again.
lock table refundd.refunds, refundd.attempts in share row exclusive mode; -- in the order in which settling takes them

create table refundd.retention (
    evidence text     not null,
    at_least interval not null,
    constraint retention_pkey primary key (evidence),
    constraint retention_is_of_permits_or_attempts check (evidence in ('permits', 'attempts')),
    -- In seconds, since months differ. The same minimums as in [recovery].
    constraint retention_is_long_enough
        check (extract(epoch from at_least) >= case evidence when 'attempts' then 30 * 86400 else 3600 end)
);

comment on table refundd.retention is 'How long evidence stays at the least, whatever a node asks for. Only the owner of the schema writes here.';
comment on column refundd.retention.evidence is 'permits: the ledger. attempts: the journal.';
comment on column refundd.retention.at_least is 'No node can drop younger evidence. [recovery] keep_permits and keep_attempts may only ask for more.';

insert into refundd.retention (evidence, at_least) values ('permits', '7 days'), ('attempts', '30 days');

-- How long evidence stays where a node asks for `keep`. The answer is in seconds: an interval of months and days may
-- compare as longer and yet reach less far back.
create function refundd.evidence_is_kept_for(evidence text, keep interval) returns interval
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    if keep is null or extract(epoch from keep) <= 0 then
        raise exception '% cannot be kept for %', evidence, coalesce(keep::text, 'null')
            using errcode = 'invalid_parameter_value',
                  hint = format('Give a time above zero, as [recovery] keep_%s does. The owner of the schema sets the least time in refundd.retention.', evidence);
    end if;
    return greatest(
        extract(epoch from keep),
        coalesce((select extract(epoch from r.at_least) from refundd.retention r where r.evidence = evidence_is_kept_for.evidence),
                 30 * 86400)) * interval '1 second';
end $$;

comment on function refundd.evidence_is_kept_for is 'How long permits or attempts stay where a node asks to keep them for `keep`: never shorter than refundd.retention says.';

-- As before, and never shorter than refundd.retention says. A rule counts as long as its permits may matter after a node
-- published another one: rows of limit_rules are never changed, so no node can shorten this by publishing a shorter rule.
create or replace function refundd.permits_are_kept_for(keep interval) returns interval
    language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    select greatest(kept.at_least, (
        select max(2 * ruled.memory) * interval '1 microsecond'
          from (select l.limit_name,
                       greatest(refundd.rule_memory(l.rule), published.memory,
                                case when l.older_at > now() - (l.older_us + refundd.rule_memory(l.rule)) * interval '1 microsecond'
                                     then refundd.rule_memory(l.rule) + l.older_us end) as memory
                  from refundd.limits l
                 cross join lateral (
                       select max(r.memory) as memory
                         from (select refundd.rule_memory(p.rule) as memory, lead(p.published_at) over (order by p.published_at) as until
                                 from refundd.limit_rules p where p.limit_name = l.limit_name) r
                        where r.until is null or r.until > now() - 2 * r.memory * interval '1 microsecond') published) ruled
         where ruled.memory * interval '1 microsecond' > kept.at_least / 2
           and exists (select from refundd.permits p where p.limit_name = ruled.limit_name)))
      from (select refundd.evidence_is_kept_for('permits', keep) as at_least) kept;
end;

-- As before (migration 0015), for as long as that says.
create or replace function refundd.turn_permits(keep interval) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    kept    interval := refundd.permits_are_kept_for(keep);
    dropped integer;
begin
    perform set_config('lock_timeout', '100ms', true);
    perform refundd.make_spans('permits', 'day', '');
    select refundd.drop_spans(array_agg(s.name order by s.until)) into dropped
      from refundd.spans('permits') s where s.until < now() - kept;
    delete from refundd.permits_of_other_days where ctid = any(array(
        select p.ctid from refundd.permits_of_other_days p where p.window_start < now() - kept limit 5000));
    return dropped;
end $$;

-- As before (migration 0015); null still keeps all.
create or replace function refundd.turn_attempts(
    keep interval, out done boolean, out dropped integer, out held_until timestamptz, out held_by bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    kept  interval := case when keep is not null then refundd.evidence_is_kept_for('attempts', keep) end;
    month record;
    over  name[];
begin
    for month in select s.name, s.until from refundd.spans('attempts') s where s.until < now() - kept order by s.until loop
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

-- A person's decision: moves the refund and writes the journal, or does neither.
-- The list of states leaves out sending (a node has leased the refund) and ready (a person cancels it instead).
-- A trigger keeps a refund that may have been executed from becoming ready while uncertain_at is set.
create function refundd.decide(
    refund bigint, next text, why text, who text, seen integer, not_executed boolean) returns setof refundd.refunds
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(btrim(why), '') = '' or coalesce(btrim(who), '') = '' then
        raise exception 'a decision about refund % names no %', refund, case when coalesce(btrim(who), '') = '' then 'person' else 'reason' end
            using errcode = 'invalid_parameter_value', hint = 'The journal keeps who decided, and why.';
    end if;
    return query
    with moved as (
        update refundd.refunds r
           set state = next, version = r.version + 1, reason = 'decided by ' || who || ': ' || why,
               due_at = case when next = 'ready' then now() else r.due_at end,
               attempts = case when next = 'ready' then 0 else r.attempts end,
               uncertain_at = case when next = 'ready' and not_executed then null else r.uncertain_at end,
               settled_at = case when next in ('succeeded', 'failed', 'cancelled') then now() end
         where r.id = refund and (r.version = seen or (seen is null and next = 'succeeded'))
           and r.state in ('review', 'unknown', 'accepted', 'failed')
           and refundd.move_is_legal(r.state, next) and not (r.state = 'unknown' and next = 'ready')
           and (next <> 'ready' or not_executed or not refundd.may_have_been_executed(r.state, r.uncertain_at, r.first_sent_at, r.reason))
        returning r.*
    ), kept as (
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        select m.id, m.channel, 'manual', coalesce(seen, 0), m.lease_epoch, who, 'decided', next,
               case when not_executed then 'confirmed_not_executed' else 'decided' end, left(why, 500)
          from moved m
    )
    select * from moved;
end $$;

comment on function refundd.decide is 'Moves a refund by a person''s decision, and writes that to the journal. `seen` is the version that the person saw; `not_executed` confirms that the bank executed nothing.';

-- Nobody but refundd.decide() changes a refund that waits for a person or has ended, or writes that a person decided: it does
-- so as the owner. Answers that come late change an ended refund as the owner, too (late_evidence_makes_a_version).
create function refundd.only_a_decision_does_this() returns trigger language plpgsql as $$
begin
    if pg_catalog.pg_has_role((select c.relowner from pg_catalog.pg_class c where c.oid = tg_relid), 'usage')
       or not pg_catalog.has_function_privilege('refundd.decide(bigint, text, text, text, integer, boolean)', 'execute') then
        return new;
    end if;
    if tg_op = 'INSERT' then
        raise exception 'a decision about refund % is written to the journal by refundd.decide alone', new.refund_id
            using errcode = 'RD006', hint = 'Decide with `refundd review settle`, or POST /v1/review.';
    end if;
    raise exception 'refund % is %, and is changed by refundd.decide alone', old.id, old.state
        using errcode = 'RD006', hint = 'Decide with `refundd review settle`, or POST /v1/review.';
end $$;

create trigger refunds_are_decided_by_a_person before update on refundd.refunds
    for each row when (old.state in ('review', 'succeeded', 'failed', 'cancelled'))
    execute function refundd.only_a_decision_does_this();

create trigger attempts_of_a_person_are_decisions before insert on refundd.attempts
    for each row when (new.kind = 'manual')
    execute function refundd.only_a_decision_does_this();

-- Functions by name: a role of nodes keeps those that everybody could execute until now, and everybody loses them.
do $$
declare
    kept record;
begin
    for kept in
        select distinct p.oid::regprocedure as name, role.grantee::regrole as role
          from pg_catalog.pg_proc p,
               (select a.grantee from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner)) role
         where p.pronamespace = 'refundd'::regnamespace and has_function_privilege('public', p.oid, 'execute')
           and p.prorettype <> 'trigger'::regtype
           and p.proname not in ('decide', 'evidence_is_kept_for')
    loop
        execute format('grant execute on function %s to %s', kept.name, kept.role);
    end loop;
end $$;

revoke execute on all functions in schema refundd from public;
