-- The role of nodes could let a `ready` refund fail, or show it to a person, and let a `sending` one fail, without a line in the journal. One
-- update ended the whole backlog: nothing was sealed, no event told of it, and the feed of changes had nothing. And what a person did by SQL
-- could be lost after the answer: under a role with `synchronous_commit = off` a crash of Postgres forgot a cancellation, and the refund was
-- sent. Migration 0063 guards saves alone.

-- As before (migration 0058), and the moves above need a line: of recovery for a `ready` refund, and of the send for a `sending` one. Nodes
-- since migration 0041 write both in the statement of the move.
create or replace function refundd.moves_are_in_the_journal() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if pg_has_role((select c.relowner from pg_class c where c.oid = tg_relid), 'usage') then
        return null;
    end if;
    if (old.uncertain_at is not null and new.uncertain_at is null
        and not (old.state in ('unknown', 'accepted') and new.state in ('ready', 'failed')))
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
    -- An inquiry goes to the first address that is asked at all, if the refund was sent where nobody is asked.
    if new.sent_to is distinct from old.sent_to and new.state <> 'ready'
       and not (new.state = 'sending' and old.state <> 'sending' and old.uncertain_at is null)
       and not (new.state = old.state and exists (select from refundd.addresses was join refundd.addresses here using (channel, endpoint)
                                                   where was.address = old.sent_to and was.inquiry = '' and here.address = new.sent_to)) then
        raise exception 'refund % may have been sent to its address, and no update names another', old.id
            using errcode = 'RD006', hint = 'A decision may: `refundd review settle`, or POST /v1/review.';
    end if;
    if not (old.state = 'ready' and new.state in ('failed', 'review')
            or old.state = 'sending' and (new.state in ('ready', 'unknown', 'review', 'failed') or (old.uncertain_at is not null and new.state <> 'sending'))
            or old.state in ('unknown', 'accepted') and new.state not in (old.state, 'sending'))
       or exists (select from refundd.attempts a
                   where a.refund_id = new.id and a.finished_at = now() and a.lease_epoch = old.lease_epoch
                     -- A node of an older version names the state that it wrote.
                     and (a.moved_to = new.state or (new.state = 'review' and old.state = 'sending' and a.moved_to = 'unknown'))
                     and a.kind = any (case when old.state = 'sending' then array['send']
                                            when old.state = 'ready' then array['recovery']
                                            when new.state = 'review' then array['inquiry', 'recovery'] else array['inquiry'] end)) then
        return null;
    end if;
    if old.state = 'sending' and new.state in ('ready', 'unknown', 'review') then
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        values (new.id, new.channel, 'send', old.attempts, old.lease_epoch, coalesce(old.lease_node, session_user), 'not_executed', new.state, 'taken_back',
                format('the role %s took the claim back and named no outcome', session_user));
        return null;
    end if;
    raise exception 'refund % % from % to % only with a line in the journal', old.id,
                    case old.state when 'ready' then 'moves' else 'may have been executed, and moves' end, old.state, new.state
        using errcode = 'RD006',
              hint = case old.state when 'ready' then 'A person may cancel it: `refundd cancel`.' else 'Decide with `refundd review settle`, or POST /v1/review.' end;
end $$;

-- As before (migration 0058), but every send that ends in `failed` calls the function. Those of nodes have a reason, and called it before.
create or replace trigger refunds_move_with_a_line after update on refundd.refunds
    for each row when (not (new.reason is null and new.uncertain_at is not distinct from old.uncertain_at
                            and case when old.state = 'sending' then new.state in ('succeeded', 'accepted', 'sending') and old.uncertain_at is null
                                          and new.first_sent_at is not distinct from old.first_sent_at and new.sent_to is not distinct from old.sent_to
                                     else new.state = 'sending' and (old.first_sent_at is null or new.first_sent_at is not distinct from old.first_sent_at)
                                          and (old.uncertain_at is null or new.sent_to is not distinct from old.sent_to) end))
    execute function refundd.moves_are_in_the_journal();

-- All that a person does by SQL writes an event. So sends, which write lines and no events, do not meet this condition.
create or replace trigger events_are_kept_when_they_are_written before insert on refundd.events
    for each statement when (current_setting('synchronous_commit') in ('off', 'local'))
    execute function refundd.saves_wait_for_the_disk();

comment on function refundd.saves_wait_for_the_disk is 'Makes the commit of a transaction that saves refunds or writes events wait until they are kept.';
