-- A failover that loses a claim gives its lease epoch to the next claim of the refund. A node that settled the lost claim again, because it
-- had not seen its commit, then took the line of the next claim for its own: the bank's answer "executed" was written nowhere. And nobody
-- heard that the bank had executed both sends.

-- The number of an inquiry goes to the next inquiry in the same way. The answer to the next one moved the refund and left no line in the
-- journal, or was refused for want of one. An answer that moved nothing was written nowhere, also "executed".

-- Whether the journal has this outcome of a send, or of the inquiry with this number, under this lease, written by a try whose commit was
-- not seen. Two claims may have one epoch: the process and the permits tell them apart. Two claims of one process that spent no permits
-- are told apart by their outcomes alone. Volatile, as refundd.send_is_kept is (migration 0053). Nodes of the last version call that one,
-- and refundd.inquiry_is_kept.
create or replace function refundd.outcome_is_kept(
    refund bigint, epoch bigint, node text, permit text, outcome text, inquiry integer default null
) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return exists (select from refundd.attempts a
                    where a.refund_id = refund and a.lease_epoch = epoch
                      and case when inquiry is null then a.kind = 'send' and a.code <> 'lease_lapsed' else a.kind = 'inquiry' and a.number = inquiry end
                      and a.node = outcome_is_kept.node and a.permit is not distinct from outcome_is_kept.permit
                      and a.outcome = outcome_is_kept.outcome);
end $$;

comment on function refundd.outcome_is_kept is 'Whether the journal has this outcome of the send, or of the inquiry with this number, that this process made under this lease.';

-- As before (migration 0064), and the answer to a send of a claim that a failover lost writes an event, too.
create or replace function refundd.late_evidence_makes_a_version() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
    -- An answer about another refund, amount or reference goes to a person in time, whatever else it says (Code::is_mixed_up).
    is_mixed_up constant boolean := new.outcome = 'review' and new.code in ('echo_differs', 'bank_ref_differs', 'bank_ref_taken');
    is_had      constant boolean := new.outcome in ('succeeded', 'accepted') or is_mixed_up;
    said        text := 'said_paid: an answer that came late says that the bank has this refund: '
                                 || case when is_mixed_up then concat_ws(': ', new.code, left(new.message, 300)) else new.outcome end;
    -- The line of an answer that moved nothing ends with the bank's reference (settle.sql, settle_inquiry.sql).
    said_ref    constant text := case when new.outcome in ('succeeded', 'accepted') then substring(new.message from '^.*; bank reference (.{1,200})$') end;
    is_another  boolean;
    is_shown    boolean;
    is_second   boolean;
    differs     text;
    r           refundd.refunds;
begin
    -- Whoever holds the row may be about to make it `ready`, or to end it: wait, and look at what it is then.
    select * into r from refundd.refunds f where f.id = new.refund_id for no key update;
    is_another := coalesce(said_ref <> r.bank_ref, false);
    if is_another then
        said := said || ' under the reference ' || said_ref || ', and it said ' || r.bank_ref || ' before: were there two refunds?';
    end if;
    is_shown := is_had and case
        when r.state = 'ready' or (r.state = 'unknown' and r.inquire_at is null) then true
        when r.state in ('unknown', 'accepted') then is_mixed_up or is_another
        -- Who ended the refund may have known that the bank took it, and the bank may have rejected it after that.
        when r.state in ('failed', 'cancelled') then new.outcome <> 'accepted' or not exists (
            select from refundd.attempts l
             where l.refund_id = r.id and l.id < new.id and l.lease_epoch >= new.lease_epoch and l.kind in ('send', 'inquiry')
               and (l.outcome = 'accepted' or (l.kind = 'inquiry' and l.outcome = 'rejected'))
               and l.id > coalesce((select max(d.id) from refundd.attempts d where d.refund_id = r.id and d.kind = 'manual' and d.moved_to = 'ready'), 0))
        else false end;
    if is_shown then
        update refundd.refunds f
           set version = f.version + 1, state = 'review', settled_at = null, reason = said, bank_ref = coalesce(f.bank_ref, said_ref)
         where f.id = r.id returning f.* into r;
        perform refundd.recovery_moved(r, 'said_paid');
    else
        update refundd.refunds f
           set version = f.version + 1, bank_ref = coalesce(f.bank_ref, said_ref),
               uncertain_at = case when is_had and f.state = 'sending' then coalesce(f.uncertain_at, clock_timestamp()) else f.uncertain_at end,
               -- Lists of reviews show the reason, and people decide by it.
               reason = case when is_had and f.state = 'review' then left(concat_ws('; before: ', said, f.reason), 1000) else f.reason end
         where f.id = new.refund_id;
        -- A line that made the refund `ready` says that no send until then was executed. This answer says that one was, and the refund was
        -- sent again since. A resend by policy has no such line before it: the bank knows the key and pays once. Nor are two answers with
        -- one reference two payments. A person who called the refund succeeded has looked at what the bank paid: then, a second payment
        -- needs the bank's own answer to a later send.
        -- After a failover that lost a claim there is no line of the lost claim, and the next one got its epoch again. Its answer comes while
        -- the next claim is under way, or beside the bank's answer to that one. Permits tell two claims of one process from each other.
        is_second := new.kind = 'send' and new.outcome in ('succeeded', 'accepted') and r.state in ('sending', 'unknown', 'accepted', 'succeeded')
            and (said_ref = r.bank_ref) is not true
            and ((r.state = 'sending' and new.lease_epoch >= r.lease_epoch)
                 or exists (select from refundd.attempts l
                             where l.refund_id = r.id and l.id <> new.id and l.kind = 'send' and l.outcome in ('succeeded', 'accepted')
                               and l.lease_epoch = new.lease_epoch and (l.node <> new.node or l.permit is distinct from new.permit))
                 or exists (select from refundd.attempts p
                             where p.refund_id = r.id and p.moved_to = 'ready' and p.lease_epoch >= new.lease_epoch and p.lease_epoch < r.lease_epoch
                               and (r.state <> 'succeeded'
                                    or exists (select from refundd.attempts l
                                                where l.refund_id = r.id and l.kind in ('send', 'inquiry') and l.outcome in ('succeeded', 'accepted')
                                                  and l.lease_epoch > p.lease_epoch))));
        -- A refund that has succeeded stays so, and one that is not over goes on. A person hears of it.
        differs := case
            when r.state in ('succeeded', 'sending') and is_another then 'the bank says too late that it has this refund under another reference: it may be paid twice'
            when is_second then 'the bank says too late that it ' || case new.outcome when 'accepted' then 'took' else 'executed' end
                                || ' an earlier send, too: it may be paid twice'
            when r.state <> 'succeeded' then null
            when is_mixed_up then 'the bank''s late answer is about another refund, amount or reference'
            when new.outcome = 'rejected' and exists (select from refundd.attempts d where d.refund_id = r.id and d.kind = 'manual' and d.moved_to = 'succeeded')
                then 'the bank says too late that it rejected this refund, which a person called succeeded' end;
        if differs is not null then
            insert into refundd.events (kind, channel, refund_id, who, before, after, reason)
            values ('late_answer_differs', r.channel, r.id, 'its bank',
                    jsonb_strip_nulls(jsonb_build_object('state', r.state, 'bank_ref', r.bank_ref)),
                    jsonb_strip_nulls(jsonb_build_object('outcome', new.outcome, 'code', new.code, 'bank_ref', said_ref,
                                                         case new.kind when 'inquiry' then 'inquiry' else 'attempt' end, new.number)), differs);
        end if;
    end if;
    return null;
end $$;

revoke execute on function refundd.outcome_is_kept from public;

-- A role of nodes may call it from now on, also before config/node-role.sql is run again.
do $$
declare
    kept record;
begin
    for kept in
        select distinct a.grantee::regrole as role
          from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
         where n.oid = 'refundd.send_is_kept'::regproc and a.grantee not in (0, n.proowner)
    loop
        execute format('grant execute on function refundd.outcome_is_kept to %s', kept.role);
    end loop;
end $$;
