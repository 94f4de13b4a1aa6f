-- A failover may lose the claim of a send, and the refund may be on another channel when the answer comes. The answer then passed for one of the
-- new channel's bank: its reference was written beside those of that bank, and equal references of both banks passed for one payment. A
-- person was sent to the wrong bank. From now on the reason and the event name the channel of the send.
-- A mixed-up answer to a lost send wrote no event, if the next send was under way or had not ended as `succeeded`. Now it does.

-- As before (migration 0090), but for `own_ref`, `elsewhere`, and the mixed-up answer to a lost send.
create or replace function refundd.late_evidence_makes_a_version() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
    -- An answer about another refund, amount or reference goes to a person in time, whatever else it says (Code::is_mixed_up).
    is_mixed_up constant boolean := new.outcome = 'review' and new.code in ('echo_differs', 'bank_ref_differs', 'bank_ref_taken');
    is_had      constant boolean := new.outcome in ('succeeded', 'accepted') or is_mixed_up;
    said        text := case when is_had then 'said_paid: an answer that came late says that the bank has this refund: '
                                              || case when is_mixed_up then concat_ws(': ', new.code, left(new.message, 300)) else new.outcome end
                                         else 'claim_lost: a failover of Postgres lost the claim of a send that was made, and what came of it came late: '
                                              || concat_ws(': ', new.outcome, new.code) end;
    -- The line of an answer that moved nothing ends with the bank's reference (settle.sql, settle_inquiry.sql).
    said_ref    constant text := case when new.outcome in ('succeeded', 'accepted') then substring(new.message from '^.*; bank reference (.{1,200})$') end;
    own_ref     text;
    elsewhere   text;
    is_lost     boolean;
    is_another  boolean;
    is_shown    boolean;
    is_second   boolean;
    differs     text;
    r           refundd.refunds;
begin
    -- Whoever holds the row may be about to make it `ready`, or to end it: wait, and look at what it is then.
    select * into r from refundd.refunds f where f.id = new.refund_id for no key update;
    -- A failover may lose the claim of a send before a move, or the move and a claim after it. The other channel's bank knows the refund by another
    -- request id, and its references say nothing about those of this channel's bank.
    if new.channel = r.channel then
        own_ref := said_ref;
    else
        elsewhere := ' (the send went to the bank of channel ' || new.channel || ', under the request id that the refund had there)';
        said := said || elsewhere;
    end if;
    -- Whether a failover lost the claim of this request. Each claim raises the row's epoch, and no statement lowers it. So a line with a
    -- higher epoch, or a late line with the epoch of another claim, has no other cause. The line of a lapsed lease is another claim's only
    -- if it is of another process. An inquiry is about a refund that its send left `unknown` or `accepted`. So it is lost, too, if its epoch
    -- is that of a send that is under way, or that led elsewhere.
    -- A send that the bank rejected is uncertain no more, but its refund is not simply sent again.
    is_lost := case new.kind
        when 'inquiry' then new.lease_epoch > r.lease_epoch or (r.state = 'sending' and new.lease_epoch = r.lease_epoch)
            or exists (select from refundd.attempts l
                        where l.refund_id = r.id and l.kind = 'send' and l.lease_epoch = new.lease_epoch
                          and l.moved_to in ('ready', 'failed', 'succeeded'))
        when 'send' then new.started_at is not null and new.outcome <> 'not_executed'
            and (new.lease_epoch > r.lease_epoch or (r.state = 'sending' and new.lease_epoch = r.lease_epoch)
                 or exists (select from refundd.attempts l
                             where l.refund_id = r.id and l.id <> new.id and l.kind = 'send' and l.lease_epoch = new.lease_epoch
                               and (l.code is distinct from 'lease_lapsed' or not starts_with(l.node || '/', new.node || '/'))
                               and (l.node <> new.node or l.permit is distinct from new.permit)))
        else false end and (r.state = 'ready' or new.outcome not in ('rejected', 'not_executed'));
    is_another := coalesce(own_ref <> r.bank_ref, false);
    if is_another then
        said := said || ' under the reference ' || own_ref || ', and it said ' || r.bank_ref || ' before: were there two refunds?';
    end if;
    is_shown := case
        when r.state = 'ready' then is_had or is_lost
        when r.state = 'unknown' and r.inquire_at is null then is_had
        when r.state in ('unknown', 'accepted') then is_mixed_up or is_another
        -- Who ended the refund may have known that the bank took it, and the bank may have rejected it after that.
        when r.state in ('failed', 'cancelled') then is_lost or is_had and (new.outcome <> 'accepted' or not exists (
            select from refundd.attempts l
             where l.refund_id = r.id and l.id < new.id and l.lease_epoch >= new.lease_epoch and l.kind in ('send', 'inquiry')
               and (l.outcome = 'accepted' or (l.kind = 'inquiry' and l.outcome = 'rejected'))
               and l.id > coalesce((select max(d.id) from refundd.attempts d where d.refund_id = r.id and d.kind = 'manual' and d.moved_to = 'ready'), 0)))
        else false end;
    if is_shown then
        update refundd.refunds f
           set version = f.version + 1, state = 'review', settled_at = null, bank_ref = coalesce(f.bank_ref, own_ref),
               reason = case when f.state in ('failed', 'cancelled') then left(concat_ws('; before: ', said, f.reason), 1000) else said end,
               -- The bank may have known the request id since the lost send.
               first_sent_at = case when is_lost and new.kind = 'send' then least(f.first_sent_at, new.started_at) else f.first_sent_at end
         where f.id = r.id returning f.* into r;
        perform refundd.recovery_moved(r, case when is_had then 'said_paid' else 'claim_lost' end);
    else
        update refundd.refunds f
           set version = f.version + 1, bank_ref = coalesce(f.bank_ref, own_ref),
               first_sent_at = case when is_lost and new.kind = 'send' then least(f.first_sent_at, new.started_at) else f.first_sent_at end,
               uncertain_at = case when (is_had and f.state = 'sending') or (is_lost and f.state in ('sending', 'review'))
                                   then coalesce(f.uncertain_at, clock_timestamp())
                                   -- The grace of "not found" begins anew, as after each send.
                                   when is_lost and f.state = 'unknown' then clock_timestamp()
                                   else f.uncertain_at end,
               -- Lists of reviews show the reason, and people decide by it. While a refund is sent, it has no other reason. What ends the
               -- send adds it to its own (settle.sql, lapse.sql).
               reason = case when ((is_had or is_lost) and f.state = 'review') or (is_lost and f.state = 'sending')
                             then left(concat_ws('; before: ', said, f.reason), 1000) else f.reason end
         where f.id = new.refund_id;
        -- A line that made the refund `ready` says that no send until then was executed. This answer says that one was, and the refund was
        -- sent again since. A resend by policy has no such line before it: the bank knows the key and pays once. Nor are two answers with
        -- one reference two payments. A person who called the refund succeeded has looked at what the bank paid: then, a second payment
        -- needs the bank's own answer to a later send.
        -- After a failover that lost a claim there is no line of the lost claim, and the next one got its epoch again. Its answer comes while
        -- the next claim is under way, or beside the bank's answer to that one. Permits tell two claims of one process from each other.
        -- An inquiry about the lost send says the same as its answer, and so does one about a send before such a line.
        is_second := new.kind in ('send', 'inquiry') and new.outcome in ('succeeded', 'accepted') and r.state in ('sending', 'unknown', 'accepted', 'succeeded')
            and (own_ref = r.bank_ref) is not true
            and ((new.kind = 'send' or is_lost)
                 and ((r.state = 'sending' and new.lease_epoch >= r.lease_epoch)
                      or (is_lost and (r.state in ('unknown', 'accepted') or new.lease_epoch > r.lease_epoch))
                      or exists (select from refundd.attempts l
                                  where l.refund_id = r.id and l.id <> new.id and l.kind = 'send' and l.outcome in ('succeeded', 'accepted')
                                    and l.lease_epoch = new.lease_epoch
                                    and (new.kind = 'inquiry' or l.node <> new.node or l.permit is distinct from new.permit)))
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
            -- Also while the next send is open: its answer says nothing about this one, and an answer "executed" shows the refund to nobody.
            when is_lost and (is_mixed_up or not is_had) and r.state in ('sending', 'unknown', 'accepted', 'succeeded')
                then 'a failover of Postgres lost the claim of an earlier send, which may have been executed, too: it may be paid twice'
            when r.state <> 'succeeded' then null
            when is_mixed_up then 'the bank''s late answer is about another refund, amount or reference'
            when new.outcome = 'rejected' and exists (select from refundd.attempts d where d.refund_id = r.id and d.kind = 'manual' and d.moved_to = 'succeeded')
                then 'the bank says too late that it rejected this refund, which a person called succeeded' end;
        differs := differs || coalesce(elsewhere, '');
        -- If the claim was kept and only its end was lost, the inquiry was about this very send. The row does not show which.
        if new.kind = 'inquiry' and r.state = 'sending' and new.lease_epoch = r.lease_epoch then
            differs := differs || ', unless a failover of Postgres lost only what came of this send';
        elsif new.kind = 'inquiry' and is_second and not is_lost and not is_another then
            -- Both sends had one request id. The bank may have looked when the later one was there.
            differs := differs || ', unless this answer was about the later send';
        end if;
        if differs is not null then
            insert into refundd.events (kind, channel, refund_id, who, before, after, reason)
            values ('late_answer_differs', r.channel, r.id, 'its bank',
                    jsonb_strip_nulls(jsonb_build_object('state', r.state, 'bank_ref', r.bank_ref)),
                    jsonb_strip_nulls(jsonb_build_object('outcome', new.outcome, 'code', new.code, 'bank_ref', said_ref, 'channel', case when elsewhere is not null then new.channel end,
                                                         case new.kind when 'inquiry' then 'inquiry' else 'attempt' end, new.number)), differs);
        end if;
    end if;
    return null;
end $$;
