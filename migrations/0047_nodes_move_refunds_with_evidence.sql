-- The role of nodes could have an `unknown` refund sent again by a plain update to `ready`: without a line in the journal, an
-- event or a second person. It could also forget that a refund is uncertain, or when it was first sent, and so get it resent. And
-- it could write events in a person's name, because a trigger reads the name from `reason`. Now the tables refuse all three.
-- The owner of the schema is not bound, nor are the functions that run with the owner's rights.
-- Nodes of the last version go on as before.

-- A refund that a bank may have executed leaves its state with a line of the journal, in the same statement: that of an inquiry,
-- or of recovery. A send that becomes `ready` again leaves with the line of its outcome. `finished_at` and `now()` are the time of
-- the transaction, and no role may write `finished_at`: so a line of an earlier transaction does not count.
-- Taking back a claim whose commit a node did not see has no outcome. The trigger itself writes that line.
create function refundd.moves_are_in_the_journal() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if pg_has_role((select c.relowner from pg_class c where c.oid = tg_relid), 'usage')
       or exists (select from refundd.attempts a
                   where a.refund_id = new.id and a.finished_at = now() and a.lease_epoch = old.lease_epoch and a.moved_to = new.state
                     and a.kind = any (case when old.state = 'sending' then array['send']
                                            when new.state = 'review' then array['inquiry', 'recovery'] else array['inquiry'] end)) then
        return null;
    end if;
    if old.state = 'sending' then
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        values (new.id, new.channel, 'send', old.attempts, old.lease_epoch, coalesce(old.lease_node, session_user), 'not_executed', 'ready', 'taken_back',
                format('the role %s took the claim back and named no outcome', session_user));
        return null;
    end if;
    raise exception 'refund % may have been executed, and moves from % to % only with a line in the journal', old.id, old.state, new.state
        using errcode = 'RD006', hint = 'Decide with `refundd review settle`, or POST /v1/review.';
end $$;

comment on function refundd.moves_are_in_the_journal is 'Refuses a move that leaves no line in the journal, where the bank may have executed the refund.';

-- No move of the plain way calls the function: ready → sending → succeeded, or accepted.
create trigger refunds_move_with_a_line after update on refundd.refunds
    for each row when ((old.state = 'sending' and new.state = 'ready')
                       or (old.state in ('unknown', 'accepted') and new.state not in (old.state, 'sending')))
    execute function refundd.moves_are_in_the_journal();

-- The claim writes `first_sent_at` and never changes it. Settling clears it where no byte of the first send left. Only the
-- bank's refusal, "not found" where that is final, and a person clear `uncertain_at`: with the moves to `failed` and `ready`.
create function refundd.what_may_have_been_executed_stays_so() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if pg_has_role((select c.relowner from pg_class c where c.oid = tg_relid), 'usage') then
        return null;
    end if;
    raise exception 'refund % may have been executed since %, and no update changes that', old.id, coalesce(old.uncertain_at, old.first_sent_at, new.first_sent_at)
        using errcode = 'RD006', hint = 'A decision may: `refundd review settle`, or POST /v1/review.';
end $$;

comment on function refundd.what_may_have_been_executed_stays_so is 'Refuses an update that makes people and nodes believe that a refund was not sent, or was sent later.';

create trigger refunds_stay_uncertain after update on refundd.refunds
    for each row when ((old.uncertain_at is not null and new.uncertain_at is null and new.state not in ('ready', 'failed'))
                       or (new.first_sent_at is distinct from old.first_sent_at
                           and not (old.first_sent_at is null and old.state <> 'sending' and new.state = 'sending')
                           and not (new.first_sent_at is null and old.state = 'sending' and new.state <> 'sending' and new.uncertain_at is null)))
    execute function refundd.what_may_have_been_executed_stays_so();

-- `reason` says who decided, cancelled or moved a refund, and an event repeats it. Only functions write that, beside a line of the
-- journal: refundd.decide, refundd.approve, refundd.cancel and refundd.move. A cancellation needs its function in any case.
create function refundd.people_act_by_functions() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if pg_has_role((select c.relowner from pg_class c where c.oid = tg_relid), 'usage') then
        return null;
    end if;
    raise exception 'what a person does with refund % is written by refundd.decide, refundd.cancel and refundd.move alone', old.id
        using errcode = 'RD006', hint = 'They write the journal and the event, too. The commands are `refundd review settle`, `refundd cancel` and `refundd move`.';
end $$;

comment on function refundd.people_act_by_functions is 'Refuses an update that says what a person did, outside of the functions that also write the journal.';

create trigger refunds_name_people_by_functions after update on refundd.refunds
    for each row when ((new.reason is distinct from old.reason
                        and (new.reason like 'decided by %' or new.reason like 'cancelled by %' or new.reason like 'moved by %'))
                       or (old.state = 'ready' and new.state = 'cancelled'))
    execute function refundd.people_act_by_functions();

revoke execute on function refundd.moves_are_in_the_journal, refundd.what_may_have_been_executed_stays_so, refundd.people_act_by_functions from public;
