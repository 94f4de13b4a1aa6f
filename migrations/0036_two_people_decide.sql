-- One person alone could have a refund sent again that may have been executed, and could decide about any amount. Now such a
-- decision is a proposal until another person approves it. The functions below check that, so no page, no command and no file
-- can leave it out: docs/decisions/0018-two-people-decide.md.
-- Nodes of the last version go on as before: refundd.decide keeps its parameters. Where two people are needed it moves
-- nothing, and such a node answers `refused`.

-- Every line there is keeps the wider check, so none is read.
alter table refundd.attempts
    drop constraint attempts_outcome_is_known,
    add constraint attempts_outcome_is_known check (outcome in
        ('succeeded', 'accepted', 'rejected', 'not_executed', 'unknown', 'review', 'decided', 'proposed', 'withdrawn')) not valid;

comment on column refundd.attempts.kind is 'send, inquiry, or manual: a person''s decision, proposal or withdrawal.';

-- Rows are added by nodes, and every row counts: a decision needs a second person as soon as one row says so. So nobody who has
-- a node's password can loosen the rule. The owner of the schema loosens it by deleting rows.
create table refundd.second_person (
    id           bigint      not null generated always as identity,
    above        jsonb       not null,
    node         text        not null,
    published_at timestamptz not null default now(),
    constraint second_person_pkey primary key (id),
    constraint second_person_above_has_currencies_with_amounts
        check (above::text ~ '^\{"[A-Z]{3}": [0-9]{1,18}(, "[A-Z]{3}": [0-9]{1,18})*\}$')
);

comment on table refundd.second_person is 'Above which amounts a decision needs a second person, as [review] second_person_above said it. Every row counts; the owner of the schema deletes rows.';
comment on column refundd.second_person.id is 'In order of writing.';
comment on column refundd.second_person.above is 'The highest amount that one person decides, for each currency, in minor units. No amount of another currency is decided by one person.';
comment on column refundd.second_person.node is 'The node whose file said so first.';
comment on column refundd.second_person.published_at is 'When that node wrote the row.';

-- What is proposed never changes, so the id of a proposal is its version, too. No foreign key: refunds are never deleted.
create table refundd.proposals (
    id                    bigint      not null generated always as identity,
    refund_id             bigint      not null,
    channel               text        not null,
    version               integer     not null,
    moves_to              text        not null,
    confirms_not_executed boolean     not null,
    needed_for            text        not null,
    reason                text        not null,
    proposed_by           text        not null,
    proposed_at           timestamptz not null default now(),
    expires_at            timestamptz not null default now() + interval '7 days',
    ended_as              text,
    ended_by              text,
    ended_at              timestamptz,
    constraint proposals_pkey primary key (id),
    constraint proposals_move_to_what_people_decide check (moves_to in ('ready', 'succeeded', 'failed', 'cancelled')),
    constraint proposals_are_needed_for_known_reasons check (needed_for in ('uncertain', 'amount')),
    constraint proposals_end_in_known_ways check (ended_as in ('approved', 'withdrawn', 'replaced')),
    constraint proposals_end_by_somebody check ((ended_as is null) = (ended_by is null) and (ended_as is null) = (ended_at is null))
);

comment on table refundd.proposals is 'Decisions that wait for a second person, and what became of them. Only refundd.propose, refundd.approve and refundd.withdraw write here.';
comment on column refundd.proposals.id is 'In order of writing.';
comment on column refundd.proposals.refund_id is 'The refund.';
comment on column refundd.proposals.channel is 'Its channel, repeated here to list by.';
comment on column refundd.proposals.version is 'The version of the refund that the proposer saw. Once the refund has another one, the proposal cannot be approved any more.';
comment on column refundd.proposals.moves_to is 'The state that the proposer chose.';
comment on column refundd.proposals.confirms_not_executed is 'The proposer says that the bank executed none of the earlier sends.';
comment on column refundd.proposals.needed_for is 'Why one person is not enough: uncertain (an earlier send may have been executed) or amount.';
comment on column refundd.proposals.reason is 'How the proposer knows.';
comment on column refundd.proposals.proposed_by is 'The proposer.';
comment on column refundd.proposals.proposed_at is 'When it was proposed.';
comment on column refundd.proposals.expires_at is 'It cannot be approved after this time: what a bank said may be old then.';
comment on column refundd.proposals.ended_as is 'approved; withdrawn by a person; replaced by another proposal of the same person. Null while it waits, and for ever if it expired or the refund moved.';
comment on column refundd.proposals.ended_by is 'The person who ended it.';
comment on column refundd.proposals.ended_at is 'When it ended.';

create index proposals_that_have_not_ended on refundd.proposals (refund_id) where ended_as is null;

create function refundd.proposals_only_end() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if old.ended_as is null
           and (new.id, new.refund_id, new.channel, new.version, new.moves_to, new.confirms_not_executed, new.needed_for,
                new.reason, new.proposed_by, new.proposed_at, new.expires_at)
             = (old.id, old.refund_id, old.channel, old.version, old.moves_to, old.confirms_not_executed, old.needed_for,
                old.reason, old.proposed_by, old.proposed_at, old.expires_at) then
            return new;
        end if;
    end if;
    raise exception 'refundd.proposals is append-only: % is refused', lower(tg_op)
        using errcode = 'RD003', hint = 'A proposal never changes, and it ends once. Withdraw it and propose anew.';
end $$;

create trigger proposals_only_end before update on refundd.proposals
    for each row execute function refundd.proposals_only_end();
create trigger proposals_are_never_deleted before delete or truncate on refundd.proposals
    for each statement execute function refundd.proposals_only_end();

-- Why this decision needs a second person; null if one person decides.
create function refundd.needs_second_person(r refundd.refunds, next text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case
        when next = 'ready' and refundd.may_have_been_executed(r.state, r.uncertain_at, r.first_sent_at, r.reason) then 'uncertain'
        when exists (select from refundd.second_person s
                      where r.amount_minor > coalesce((s.above ->> r.currency)::bigint, -1)) then 'amount'
    end
$$;

-- The list of states leaves out sending (a node has leased the refund) and ready (a person cancels it instead).
create function refundd.decision_is_allowed(r refundd.refunds, next text, seen integer, not_executed boolean) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select (r.version = seen or (seen is null and next = 'succeeded'))
       and r.state in ('review', 'unknown', 'accepted', 'failed')
       and refundd.move_is_legal(r.state, next) and not (r.state = 'unknown' and next = 'ready')
       and (next <> 'ready' or not_executed or not refundd.may_have_been_executed(r.state, r.uncertain_at, r.first_sent_at, r.reason))
$$;

-- Names are compared as people read them: "Ann " is ann.
create function refundd.is_same_person(one text, other text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select lower(btrim(normalize(one, nfkc))) = lower(btrim(normalize(other, nfkc)))
$$;

create function refundd.people_give_reasons(what text, why text, who text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(btrim(why), '') = '' or coalesce(btrim(who), '') = '' then
        raise exception '% names no %', what, case when coalesce(btrim(who), '') = '' then 'person' else 'reason' end
            using errcode = 'invalid_parameter_value', hint = 'The journal keeps who decided, and why.';
    end if;
end $$;

-- Moves the refund and writes the journal, or does neither. The two callers below know who may.
-- A trigger keeps a refund that may have been executed from becoming ready while uncertain_at is set.
create function refundd.carry_out(
    refund bigint, next text, seen integer, not_executed boolean, is_approved boolean, note text, who text, why text
) returns setof refundd.refunds
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    return query
    with moved as (
        update refundd.refunds r
           set state = next, version = r.version + 1, reason = note,
               due_at = case when next = 'ready' then now() else r.due_at end,
               attempts = case when next = 'ready' then 0 else r.attempts end,
               uncertain_at = case when next = 'ready' and not_executed then null else r.uncertain_at end,
               settled_at = case when next in ('succeeded', 'failed', 'cancelled') then now() end
         where r.id = refund and refundd.decision_is_allowed(r, next, seen, not_executed)
           and (is_approved or refundd.needs_second_person(r, next) is null)
        returning r.*
    ), kept as (
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        select m.id, m.channel, 'manual', coalesce(seen, 0), m.lease_epoch, who, 'decided', next,
               case when not_executed then 'confirmed_not_executed' else 'decided' end, left(why, 500)
          from moved m
    )
    select * from moved;
end $$;

-- As before (migration 0027), where one person is enough. Otherwise it moves nothing.
create or replace function refundd.decide(
    refund bigint, next text, why text, who text, seen integer, not_executed boolean) returns setof refundd.refunds
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform refundd.people_give_reasons('a decision about refund ' || refund, why, who);
    return query select * from refundd.carry_out(
        refund, next, seen, not_executed, false, 'decided by ' || who || ': ' || why, who, why);
end $$;

comment on function refundd.decide is 'Moves a refund by one person''s decision, and writes that to the journal. `seen` is the version that the person saw; `not_executed` confirms that the bank executed nothing. Moves nothing where a second person is needed: refundd.propose.';

-- Keeps a decision that needs a second person. A person has one proposal for a version of a refund: the same one again is the
-- one that waits, and another one replaces it. Proposals of other people stand beside it.
create function refundd.propose(
    refund bigint, next text, why text, who text, seen integer, not_executed boolean) returns setof refundd.proposals
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    r      refundd.refunds;
    p      refundd.proposals;
    needed text;
begin
    perform refundd.people_give_reasons('a proposal about refund ' || refund, why, who);
    -- First the refund and then its proposals, in this order everywhere.
    select * into r from refundd.refunds f where f.id = refund for no key update;
    if not found or not coalesce(refundd.decision_is_allowed(r, next, seen, not_executed), false) then
        return;
    end if;
    needed := refundd.needs_second_person(r, next);
    if needed is null then
        return;
    end if;
    select * into p from refundd.proposals o
     where o.refund_id = r.id and o.version = r.version and o.ended_as is null and o.expires_at > now()
       and refundd.is_same_person(o.proposed_by, who) and o.moves_to = next
       and o.confirms_not_executed = coalesce(not_executed, false) and o.needed_for = needed;
    if found then
        return next p;
        return;
    end if;
    update refundd.proposals o set ended_as = 'replaced', ended_by = who, ended_at = now()
     where o.refund_id = r.id and o.ended_as is null and refundd.is_same_person(o.proposed_by, who);
    insert into refundd.proposals as o
           (refund_id, channel, version, moves_to, confirms_not_executed, needed_for, reason, proposed_by)
    values (r.id, r.channel, r.version, next, coalesce(not_executed, false), needed, why, who)
    returning o.* into p;
    insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code, message)
    values (r.id, r.channel, 'manual', r.version, r.lease_epoch, who, 'proposed',
            case when not_executed then 'confirmed_not_executed' else 'proposed' end,
            left(format('proposal %s, %s: %s', p.id, next, why), 500));
    return next p;
end $$;

comment on function refundd.propose is 'Keeps a decision that needs a second person, with the parameters of refundd.decide, and writes that to the journal. Answers no row where one person is enough, or where the decision is not allowed.';

-- A second person's approval: moves the refund as it was proposed. `seen` is the version of the refund that the approver saw.
-- Two approvals, or an approval and a withdrawal, wait for each other at the refund; the second finds the proposal ended.
create function refundd.approve(
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
        when p.ended_as is not null then 'ended'
        when r.version <> p.version or seen is distinct from r.version then 'changed'
        when p.expires_at <= now() then 'expired'
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
    update refundd.proposals o set ended_as = 'approved', ended_by = who, ended_at = now() where o.id = proposal
    returning o.* into p;
    result := 'approved';
end $$;

comment on function refundd.approve is 'Carries out a proposal in the name of a second person, and writes that to the journal. `seen` is the version of the refund that this person saw. `result` is approved, or says why nothing was done: ended, changed, expired, same_person, no_such_proposal.';

-- Anybody who may decide may withdraw a proposal, also another person's: it moves no money.
create function refundd.withdraw(
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
    update refundd.proposals o set ended_as = 'withdrawn', ended_by = who, ended_at = now()
     where o.id = proposal and o.ended_as is null;
    result := case when found then 'withdrawn' else 'ended' end;
    if result = 'withdrawn' then
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code, message)
        values (r.id, r.channel, 'manual', p.version, r.lease_epoch, who, 'withdrawn', 'withdrawn',
                left(format('withdraws proposal %s of %s: %s', p.id, p.proposed_by, why), 500));
    end if;
    select * into p from refundd.proposals o where o.id = proposal;
end $$;

comment on function refundd.withdraw is 'Ends a proposal that waits, and writes that to the journal. `result` is withdrawn, ended or no_such_proposal.';
comment on function refundd.needs_second_person is 'Why a decision about this refund needs a second person: uncertain or amount; null if one person decides.';
comment on function refundd.decision_is_allowed is 'Whether people may decide so about this refund, as they saw it.';
comment on function refundd.is_same_person is 'Whether two names are one person''s, as people read them.';
comment on function refundd.carry_out is 'Moves a refund as people decided, and writes that to the journal.';
comment on function refundd.people_give_reasons is 'Refuses what people do without a name or without a reason.';

revoke execute on function refundd.proposals_only_end, refundd.needs_second_person, refundd.decision_is_allowed,
    refundd.is_same_person, refundd.people_give_reasons, refundd.carry_out, refundd.propose, refundd.approve, refundd.withdraw
    from public;
