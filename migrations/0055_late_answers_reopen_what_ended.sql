-- What late answers left open (migration 0053). When the bank's answer "executed" came too late for a refund that had `failed`, or was
-- cancelled, only `uncertain_at` told of it: no list showed the refund, no program heard of it, and nobody could call it succeeded. An
-- answer that came too late and is about another refund, amount or reference counted as nothing, and the refund could be sent again. A refund in review kept its old reason, although the bank had said since that it executed it. And a claim that was taken back
-- left no line when it led to `review`.

-- As before (migration 0053), and `failed` and `cancelled` to `review`: the bank's late answer says that it executed the refund.
create or replace function refundd.move_is_legal(old_state text, new_state text) returns boolean
    language sql immutable parallel safe
return (old_state, new_state) in (
    ('ready', 'sending'), ('ready', 'cancelled'), ('ready', 'failed'), ('ready', 'review'),
    ('sending', 'ready'), ('sending', 'accepted'), ('sending', 'unknown'), ('sending', 'review'),
    ('sending', 'succeeded'), ('sending', 'failed'),
    ('accepted', 'review'), ('accepted', 'succeeded'), ('accepted', 'failed'),
    ('unknown', 'ready'), ('unknown', 'sending'), ('unknown', 'accepted'), ('unknown', 'review'),
    ('unknown', 'succeeded'), ('unknown', 'failed'),
    ('review', 'ready'), ('review', 'succeeded'), ('review', 'failed'), ('review', 'cancelled'),
    ('failed', 'ready'), ('failed', 'review'),
    ('cancelled', 'review')
);

-- As before (migration 0053), and an answer about another refund counts, too.
create or replace function refundd.was_said_paid(refund bigint, or_took boolean) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return exists (
        select from refundd.attempts a
         where a.refund_id = refund and a.kind in ('send', 'inquiry')
           and (a.outcome = 'succeeded' or (or_took and a.outcome = 'accepted')
                or (a.outcome = 'review' and a.code in ('echo_differs', 'bank_ref_differs', 'bank_ref_taken')))
           and a.id > coalesce((select max(d.id) from refundd.attempts d
                                 where d.refund_id = refund and d.kind = 'manual' and d.moved_to = 'ready'), 0));
end $$;

comment on function refundd.was_said_paid is
    'Whether the bank said that it executed a refund, or mixed it up with another one, or, with or_took, that it took it, since people last decided that it may be sent.';

-- What the bank says too late. The wait for the row, and for the count of ended refunds, is short: other outcomes are in the same commit.
create or replace function refundd.late_evidence_makes_a_version() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
    -- An answer about another refund, amount or reference goes to a person in time, whatever else it says (Code::is_mixed_up).
    is_mixed_up constant boolean := new.outcome = 'review' and new.code in ('echo_differs', 'bank_ref_differs', 'bank_ref_taken');
    is_had      constant boolean := new.outcome in ('succeeded', 'accepted') or is_mixed_up;
    said        constant text := 'said_paid: an answer that came late says that the bank has this refund: '
                                 || case when is_mixed_up then concat_ws(': ', new.code, left(new.message, 300)) else new.outcome end;
    is_shown    boolean;
    r           refundd.refunds;
begin
    -- Whoever holds the row may be about to make it `ready`, or to end it: wait, and look at what it is then.
    select * into r from refundd.refunds f where f.id = new.refund_id for no key update;
    is_shown := is_had and case
        when r.state = 'ready' or (r.state = 'unknown' and r.inquire_at is null) then true
        when r.state in ('unknown', 'accepted') then is_mixed_up
        -- Who ended the refund may have known that the bank took it, and the bank may have rejected it after that.
        when r.state in ('failed', 'cancelled') then new.outcome <> 'accepted' or not exists (
            select from refundd.attempts l
             where l.refund_id = r.id and l.id < new.id and l.lease_epoch >= new.lease_epoch and l.kind in ('send', 'inquiry')
               and (l.outcome = 'accepted' or (l.kind = 'inquiry' and l.outcome = 'rejected'))
               and l.id > coalesce((select max(d.id) from refundd.attempts d where d.refund_id = r.id and d.kind = 'manual' and d.moved_to = 'ready'), 0))
        else false end;
    if is_shown then
        update refundd.refunds f
           set version = f.version + 1, state = 'review', settled_at = null, reason = said
         where f.id = r.id returning f.* into r;
        perform refundd.recovery_moved(r, 'said_paid');
    else
        update refundd.refunds f
           set version = f.version + 1,
               uncertain_at = case when is_had and f.state = 'sending' then coalesce(f.uncertain_at, clock_timestamp()) else f.uncertain_at end,
               -- Lists of reviews show the reason, and people decide by it.
               reason = case when is_had and f.state = 'review' then left(concat_ws('; before: ', said, f.reason), 1000) else f.reason end
         where f.id = new.refund_id;
    end if;
    return null;
end $$;

-- As before (migration 0053), and a claim that is taken back leaves a line also when a trigger shows its refund to a person.
create or replace function refundd.moves_are_in_the_journal() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if pg_has_role((select c.relowner from pg_class c where c.oid = tg_relid), 'usage') then
        return null;
    end if;
    if (old.uncertain_at is not null and new.uncertain_at is null and new.state not in ('ready', 'failed'))
       or (new.first_sent_at is distinct from old.first_sent_at
           and not (old.first_sent_at is null and old.state <> 'sending' and new.state = 'sending')
           and not (new.first_sent_at is null and old.state = 'sending' and new.state <> 'sending' and new.uncertain_at is null)) then
        raise exception 'refund % may have been executed since %, and no update changes that', old.id, coalesce(old.uncertain_at, old.first_sent_at, new.first_sent_at)
            using errcode = 'RD006', hint = 'A decision may: `refundd review settle`, or POST /v1/review.';
    end if;
    if (new.reason is distinct from old.reason
        and (new.reason like 'decided by %' or new.reason like 'cancelled by %' or new.reason like 'moved by %'))
       or (old.state = 'ready' and new.state = 'cancelled') then
        raise exception 'what a person does with refund % is written by refundd.decide, refundd.cancel and refundd.move alone', old.id
            using errcode = 'RD006', hint = 'They write the journal and the event, too. The commands are `refundd review settle`, `refundd cancel` and `refundd move`.';
    end if;
    if not (old.state = 'sending' and new.state in ('ready', 'unknown', 'review') or old.state in ('unknown', 'accepted') and new.state not in (old.state, 'sending'))
       or exists (select from refundd.attempts a
                   where a.refund_id = new.id and a.finished_at = now() and a.lease_epoch = old.lease_epoch
                     -- A node of an older version names the state that it wrote.
                     and (a.moved_to = new.state or (new.state = 'review' and old.state = 'sending' and a.moved_to = 'unknown'))
                     and a.kind = any (case when old.state = 'sending' then array['send']
                                            when new.state = 'review' then array['inquiry', 'recovery'] else array['inquiry'] end)) then
        return null;
    end if;
    if old.state = 'sending' then
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        values (new.id, new.channel, 'send', old.attempts, old.lease_epoch, coalesce(old.lease_node, session_user), 'not_executed', new.state, 'taken_back',
                format('the role %s took the claim back and named no outcome', session_user));
        return null;
    end if;
    raise exception 'refund % may have been executed, and moves from % to % only with a line in the journal', old.id, old.state, new.state
        using errcode = 'RD006', hint = 'Decide with `refundd review settle`, or POST /v1/review.';
end $$;

-- As before (migration 0053), and no move to `review` is spared.
create or replace trigger refunds_move_with_a_line after update on refundd.refunds
    for each row when (not (new.reason is null and new.uncertain_at is not distinct from old.uncertain_at
                            and case when old.state = 'sending' then new.state not in ('ready', 'unknown', 'review') and new.first_sent_at is not distinct from old.first_sent_at
                                     else new.state = 'sending' and (old.first_sent_at is null or new.first_sent_at is not distinct from old.first_sent_at) end))
    execute function refundd.moves_are_in_the_journal();
