-- The log of a refund lacked its proposals, and the log lacked what a reload changed beside channels and limits. Now a trigger
-- writes each step of a proposal as an event, also its end after its time. And each node publishes the other sections of its
-- file in force, without secrets; a trigger writes what a reload changed of them.
-- Nodes of the last version go on as before: they publish no sections, and what they do with proposals leaves events, too.

alter table refundd.proposals
    add column end_reason text,
    drop constraint proposals_end_in_known_ways,
    add constraint proposals_end_in_known_ways check (ended_as in ('approved', 'withdrawn', 'replaced', 'expired'));

comment on table refundd.proposals is 'Decisions that wait for a second person, and what became of them. Only refundd.propose, refundd.approve, refundd.withdraw and refundd.expire_proposals write here.';
comment on column refundd.proposals.ended_as is 'approved; withdrawn by a person; replaced by another proposal of the same person; expired. Null while it waits.';
comment on column refundd.proposals.ended_by is 'The person who ended it; refundd for one that expired.';
comment on column refundd.proposals.end_reason is 'Why it ended, in the words of the one who ended it.';

-- As before (migration 0036), and the approver's reason is kept with the proposal. A proposal that has expired and of which the
-- refund has moved since is still `changed`.
create or replace function refundd.approve(
    proposal bigint, seen integer, why text, who text, out result text, out r refundd.refunds, out p refundd.proposals)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    moved refundd.refunds;
begin
    perform refundd.people_give_reasons('an approval of proposal ' || proposal, why, who);
    select * into p from refundd.proposals o where o.id = proposal;
    if not found then
        result := 'no_such_proposal';
        return;
    end if;
    select * into r from refundd.refunds f where f.id = p.refund_id for no key update;
    select * into p from refundd.proposals o where o.id = proposal for update;
    result := case
        when p.ended_as <> 'expired' then 'ended'
        when r.version <> p.version or seen is distinct from r.version then 'changed'
        -- A clock that is set back revives nothing.
        when p.ended_as is not null or p.expires_at <= now() then 'expired'
        when refundd.is_same_person(p.proposed_by, who) then 'same_person'
    end;
    if result is not null then
        return;
    end if;
    select * into moved from refundd.carry_out(
        p.refund_id, p.moves_to, p.version, p.confirms_not_executed, true,
        'decided by ' || p.proposed_by || ' and ' || who || ': ' || p.reason, who,
        format('approves proposal %s of %s: %s', p.id, p.proposed_by, why));
    if not found then
        result := 'changed';
        return;
    end if;
    r := moved;
    update refundd.proposals o set ended_as = 'approved', ended_by = who, ended_at = now(), end_reason = why where o.id = proposal
    returning o.* into p;
    result := 'approved';
end $$;

-- As before (migration 0036), and the reason is kept with the proposal.
create or replace function refundd.withdraw(
    proposal bigint, why text, who text, out result text, out r refundd.refunds, out p refundd.proposals)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform refundd.people_give_reasons('a withdrawal of proposal ' || proposal, why, who);
    select * into p from refundd.proposals o where o.id = proposal;
    if not found then
        result := 'no_such_proposal';
        return;
    end if;
    select * into r from refundd.refunds f where f.id = p.refund_id for no key update;
    update refundd.proposals o set ended_as = 'withdrawn', ended_by = who, ended_at = now(), end_reason = why
     where o.id = proposal and o.ended_as is null;
    result := case when found then 'withdrawn' else 'ended' end;
    if result = 'withdrawn' then
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code, message)
        values (r.id, r.channel, 'manual', p.version, r.lease_epoch, who, 'withdrawn', 'withdrawn',
                left(format('withdraws proposal %s of %s: %s', p.id, p.proposed_by, why), 500));
    end if;
    select * into p from refundd.proposals o where o.id = proposal;
end $$;

-- The end of a proposal whose time is over. Approving it was refused from that time on; this writes the end down. A proposal
-- that somebody ends just now is left to the next call.
create function refundd.expire_proposals() returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    expired integer;
begin
    update refundd.proposals o
       set ended_as = 'expired', ended_by = 'refundd', ended_at = now(), end_reason = 'nobody approved it in time'
     where o.id = any(array(
        select p.id from refundd.proposals p where p.ended_as is null and p.expires_at <= now()
         order by p.id limit 5000 for update skip locked));
    get diagnostics expired = row_count;
    return expired;
end $$;

comment on function refundd.expire_proposals is 'Ends up to 5,000 proposals whose time is over; answers how many.';

-- A proposal of which the refund has moved since waits for nobody, so its end after its time is no event.
create function refundd.proposals_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        insert into refundd.events (kind, channel, refund_id, who, after, reason)
        values ('proposed', new.channel, new.refund_id, new.proposed_by,
                jsonb_build_object('proposal', new.id, 'state', new.moves_to, 'version', new.version,
                                   'needed_for', new.needed_for, 'expires_at', new.expires_at), new.reason);
    elsif new.ended_as <> 'expired'
          or exists (select from refundd.refunds r where r.id = new.refund_id and r.version = new.version) then
        insert into refundd.events (kind, channel, refund_id, who, before, reason)
        values (new.ended_as, new.channel, new.refund_id, new.ended_by,
                jsonb_build_object('proposal', new.id, 'state', new.moves_to, 'version', new.version, 'who', new.proposed_by),
                coalesce(new.end_reason, case new.ended_as when 'replaced' then 'the proposer made another proposal' end));
    end if;
    return null;
end $$;

create trigger proposals_made_are_events after insert on refundd.proposals
    for each row execute function refundd.proposals_write_events();

create trigger proposals_ended_are_events after update on refundd.proposals
    for each row when (old.ended_as is null and new.ended_as is not null)
    execute function refundd.proposals_write_events();

alter table refundd.nodes add column settings jsonb not null default '{}';

comment on column refundd.nodes.settings is 'The sections of its file that a reload takes over, beside channels and limits, by name: without secrets, with defaults. Empty while the node has not published them.';

-- As before (migration 0037), and a reload that changed a section is an event.
create or replace function refundd.nodes_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        insert into refundd.events (kind, who, after) values ('node_joined', new.node, jsonb_build_object('version', new.version));
    elsif tg_op = 'UPDATE' then
        insert into refundd.events (kind, who, before, after)
        values ('node_changed', new.node, nullif(refundd.differing(old.settings, new.settings), '{}'),
                nullif(refundd.differing(new.settings, old.settings), '{}'));
    else
        insert into refundd.events (kind, who, before, reason)
        values ('node_left', old.node, jsonb_build_object('seen_at', old.seen_at),
                case when old.seen_at < now() - interval '30 seconds' then 'it was not seen any more' else 'it stopped' end);
    end if;
    return null;
end $$;

-- A node's first settings are those that it started with.
create trigger nodes_changed_are_events after update on refundd.nodes
    for each row when (old.settings <> '{}' and new.settings is distinct from old.settings)
    execute function refundd.nodes_write_events();

-- The bank's reference of a refund that a person settled as succeeded, as the person read it on the bank's statement. Until now
-- only a bank's answer could bring it. It is written once, and never over another one.
create function refundd.note_bank_ref(refund bigint, reference text, who text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    r refundd.refunds;
begin
    perform refundd.people_give_reasons('a bank reference of refund ' || refund, reference, who);
    if refundd.refused_character(reference) is not null or refundd.holds_card_number(reference) then
        raise exception 'a bank reference holds a hidden character or what looks like a card number'
            using errcode = 'invalid_parameter_value', hint = 'Write the reference as it stands on the bank''s statement.';
    end if;
    update refundd.refunds f set bank_ref = reference
     where f.id = refund and f.state = 'succeeded' and f.bank_ref is null returning f.* into r;
    if not found then
        return exists (select from refundd.refunds f where f.id = refund and f.state = 'succeeded' and f.bank_ref = reference);
    end if;
    insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code, message)
    values (r.id, r.channel, 'manual', r.version, r.lease_epoch, who, 'decided', 'bank_ref_noted', 'bank reference ' || reference);
    insert into refundd.events (kind, channel, refund_id, who, after)
    values ('bank_ref_noted', r.channel, r.id, who, jsonb_build_object('bank_ref', reference));
    return true;
end $$;

comment on function refundd.note_bank_ref is 'Writes down the bank''s reference of a refund that has succeeded and has none, with a line in the journal and an event. Answers whether the refund has this reference now.';

revoke execute on function refundd.expire_proposals, refundd.note_bank_ref, refundd.proposals_write_events from public;

-- A role of nodes may do both from now on, also before config/node-role.sql is run again: the last version needed no right.
do $$
declare
    kept record;
begin
    for kept in
        select distinct a.grantee::regrole as role
          from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
         where n.oid = 'refundd.decide'::regproc and a.grantee not in (0, n.proowner)
    loop
        execute format('grant execute on function refundd.expire_proposals, refundd.note_bank_ref to %s', kept.role);
    end loop;
end $$;
