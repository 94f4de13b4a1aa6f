-- Postgres prepares the condition of each trigger of a table anew for every update, and a foreign key asks once for each row. Together
-- they cost a tenth of a claim and a settlement. What is refused stays the same.

-- As before (migration 0040). An update that names none of these columns does not look at them.
create or replace trigger refunds_keep_what_is_owed
    before update of id, refund_ref, channel, payment_ref, amount_minor, currency, request_id, payload, created_at, saved_channel on refundd.refunds
    for each row when (
        old.id is distinct from new.id or old.refund_ref is distinct from new.refund_ref or old.channel is distinct from new.channel
        or old.payment_ref is distinct from new.payment_ref or old.amount_minor is distinct from new.amount_minor
        or old.currency is distinct from new.currency or old.request_id is distinct from new.request_id
        or old.payload is distinct from new.payload or old.created_at is distinct from new.created_at
        or old.saved_channel is distinct from new.saved_channel)
    execute function refundd.what_is_owed_never_changes();

-- As before (migration 0018), and what becomes ready was sent nowhere (migration 0019).
create or replace function refundd.only_legal_moves() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.version < old.version then
        raise exception 'refund % cannot go back from version % to %', old.id, old.version, new.version
            using errcode = 'RD002', hint = 'The version of a refund only rises.';
    end if;
    if new.state is not distinct from old.state then
        return new;
    end if;
    if not refundd.move_is_legal(old.state, new.state) then
        raise exception 'refund % cannot move from % to %', old.id, old.state, new.state
            using errcode = 'RD002', hint = 'The legal moves are listed in refundd.move_is_legal.';
    end if;
    if new.version = old.version then
        new.version := old.version + 1;
    end if;
    if new.state = 'ready' then
        if old.state = 'sending' and old.uncertain_at is not null then
            raise exception 'refund % may have been executed by an earlier send and cannot become ready', old.id
                using errcode = 'RD002', hint = 'What became of this send says nothing about the earlier one.';
        end if;
        if old.state in ('review', 'failed') and new.uncertain_at is not null then
            raise exception 'refund % may have been executed by an earlier send and becomes ready only by a decision that confirms it was not', old.id
                using errcode = 'RD002', hint = 'Decide with `refundd review settle`, or POST /v1/review, and confirm that it was not executed.';
        end if;
        new.uncertain_at := null;
        new.sent_to := null;
    elsif new.state = 'unknown' then
        new.uncertain_at := clock_timestamp();
    elsif new.state = 'review' and new.uncertain_at is null
          and (old.state <> 'sending' or new.first_sent_at is not null) then
        new.uncertain_at := clock_timestamp();
    end if;
    if new.state not in ('unknown', 'accepted') then
        new.inquire_at := null;
    end if;
    return new;
end $$;

drop trigger if exists refunds_ready_were_sent_nowhere on refundd.refunds;
drop function if exists refundd.what_is_ready_was_sent_nowhere;

-- Three triggers of migration 0047 in one: the owner of the schema, and functions with its rights, are not bound by any of them.
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
    if not (old.state = 'sending' and new.state = 'ready' or old.state in ('unknown', 'accepted') and new.state not in (old.state, 'sending'))
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

comment on function refundd.moves_are_in_the_journal is 'Refuses what no update by a node may do: leave no line in the journal, or name no person, or forget that the bank may have executed the refund.';

-- Claims, and sends that ended in any other state than `ready`, keep all this and do not call the function.
create or replace trigger refunds_move_with_a_line after update on refundd.refunds
    for each row when (not (new.reason is null and new.uncertain_at is not distinct from old.uncertain_at
                            and case when old.state = 'sending' then new.state <> 'ready' and new.first_sent_at is not distinct from old.first_sent_at
                                     else new.state = 'sending' and (old.first_sent_at is null or new.first_sent_at is not distinct from old.first_sent_at) end))
    execute function refundd.moves_are_in_the_journal();

drop trigger if exists refunds_stay_uncertain on refundd.refunds;
drop trigger if exists refunds_name_people_by_functions on refundd.refunds;
drop function if exists refundd.what_may_have_been_executed_stays_so, refundd.people_act_by_functions;

-- As before (migration 0014). Only an update that names the column can clear it.
create or replace trigger refunds_that_did_not_end_are_not_counted after update of settled_at on refundd.refunds
    for each row when (old.settled_at is not null and new.settled_at is null)
    execute function refundd.it_did_not_end();

-- The journal's foreign key as a law of the statement, like that of refunds and channels (migration 0012). Refunds are never
-- deleted, so nothing else can break it.
create or replace function refundd.lines_belong_to_refunds() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    stranger bigint;
begin
    -- A subquery for each line, and not a join: planned for many lines, a join would read the whole table.
    select line.refund_id into stranger from written line
     where (select true from refundd.refunds r where r.id = line.refund_id) is null limit 1;
    if found then
        raise exception 'insert or update on table "attempts" violates foreign key constraint "attempts_belong_to_a_refund"'
            using errcode = 'foreign_key_violation', detail = format('There is no refund %s.', stranger),
                  schema = 'refundd', table = 'attempts', constraint = 'attempts_belong_to_a_refund';
    end if;
    return null;
end $$;

comment on function refundd.lines_belong_to_refunds is 'Refuses lines of the journal that belong to no refund.';

alter table refundd.attempts drop constraint if exists attempts_belong_to_a_refund;
create or replace trigger attempts_belong_to_a_refund after insert on refundd.attempts referencing new table as written
    for each statement execute function refundd.lines_belong_to_refunds();

revoke execute on function refundd.lines_belong_to_refunds from public;
