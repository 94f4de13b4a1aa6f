-- A proposal is void once its refund has changed. Nothing ended it: it left no event, so programs that follow proposals heard of its
-- beginning alone. Some days later it ended as expired, in silence. Now it ends as `void`, with an event: at the next approval, or when
-- the leading node looks.
-- A node of the last version does not know this end: until it is restarted, it shows no story of a refund with such a proposal.

alter table refundd.proposals
    drop constraint proposals_end_in_known_ways,
    add constraint proposals_end_in_known_ways check (ended_as in ('approved', 'withdrawn', 'replaced', 'expired', 'void'));

comment on column refundd.proposals.ended_as is 'approved; withdrawn by a person; replaced by another proposal of the same person; expired; void: the refund changed, and nobody had approved it. Null while it waits, and until somebody looks.';
comment on column refundd.proposals.ended_by is 'The person who ended it; refundd for one that expired or is void.';

-- As before (migration 0045), and a proposal of which the refund has another version ends. It is still `changed` for the approver.
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
        when p.ended_as not in ('expired', 'void') then 'ended'
        when r.version <> p.version or seen is distinct from r.version then 'changed'
        -- A clock that is set back revives nothing.
        when p.ended_as is not null or p.expires_at <= now() then 'expired'
        when refundd.is_same_person(p.proposed_by, who) then 'same_person'
    end;
    if r.version <> p.version and p.ended_as is null then
        update refundd.proposals o
           set ended_as = 'void', ended_by = 'refundd', ended_at = now(), end_reason = 'the refund changed, and nobody had approved it'
         where o.id = proposal;
    end if;
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

-- As before (migration 0045), and it ends proposals whose refunds have changed, too: a refund never gets an earlier version back.
create or replace function refundd.expire_proposals() returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ended integer;
begin
    with gone as (
        select p.id, r.version <> p.version as is_void
          from refundd.proposals p join refundd.refunds r on r.id = p.refund_id
         where p.ended_as is null and (r.version <> p.version or p.expires_at <= now())
         order by p.id limit 5000 for update of p skip locked
    )
    update refundd.proposals o
       set ended_as = case when gone.is_void then 'void' else 'expired' end, ended_by = 'refundd', ended_at = now(),
           end_reason = case when gone.is_void then 'the refund changed, and nobody had approved it' else 'nobody approved it in time' end
      from gone where o.id = gone.id;
    get diagnostics ended = row_count;
    return ended;
end $$;

comment on function refundd.expire_proposals is 'Ends up to 5,000 proposals that are void, because their refunds have changed, or whose time is over; answers how many.';

-- As before (migration 0045), and each end is an event.
create or replace function refundd.proposals_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        insert into refundd.events (kind, channel, refund_id, who, after, reason)
        values ('proposed', new.channel, new.refund_id, new.proposed_by,
                jsonb_build_object('proposal', new.id, 'state', new.moves_to, 'version', new.version,
                                   'needed_for', new.needed_for, 'expires_at', new.expires_at), new.reason);
    else
        insert into refundd.events (kind, channel, refund_id, who, before, reason)
        values (new.ended_as, new.channel, new.refund_id, new.ended_by,
                jsonb_build_object('proposal', new.id, 'state', new.moves_to, 'version', new.version, 'who', new.proposed_by),
                coalesce(new.end_reason, case new.ended_as when 'replaced' then 'the proposer made another proposal' end));
    end if;
    return null;
end $$;
