-- An answer that came too late for a refund that had succeeded moved nothing, and nobody heard of it: not if the bank had executed the
-- refund twice, under two references, and not if it had rejected a refund that a person called succeeded. The reference of a late answer
-- stood in the log alone.

-- As before (migration 0055). A late answer that contradicts a refund that has succeeded writes an event, and a refund without a reference
-- gets that of the late answer, so that a later answer with another one is seen to differ.
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
        -- A refund that has succeeded stays so, and one that is sent now goes on. A person hears of it.
        differs := case
            when r.state in ('succeeded', 'sending') and is_another then 'the bank says too late that it has this refund under another reference: it may be paid twice'
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

-- As before (migration 0053). Who says that nothing was executed says it of the reference, too. Else the answer to the next send, which
-- has its own reference, would contradict it. The event of the decision keeps the reference.
create or replace function refundd.carry_out(
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
               bank_ref = case when next = 'ready' and (not_executed or r.state = 'failed' and r.uncertain_at is null) then null else r.bank_ref end,
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
