-- A bank may contradict itself. When its answer "executed" came too late to move a refund, it stood in the journal alone: an
-- inquiry that found no such refund made the refund `ready` all the same, and it was sent again. From now on such a refund goes to a
-- person. The same if the late answer meets a refund that is `ready` again, or waits to be sent again under its key. If it meets a
-- refund that is being sent again, that refund cannot become `ready` any more.

-- Whether the bank said that it executed a refund, since people last decided that it may be sent.
-- Volatile, so that it sees what was committed while its statement waited for a row.
create function refundd.was_said_paid(refund bigint) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return exists (
        select from refundd.attempts a
         where a.refund_id = refund and a.kind in ('send', 'inquiry') and a.outcome = 'succeeded'
           and a.id > coalesce((select max(d.id) from refundd.attempts d
                                 where d.refund_id = refund and d.kind = 'manual' and d.moved_to = 'ready'), 0));
end $$;

comment on function refundd.was_said_paid is 'Whether the bank said that it executed a refund, since people last decided that it may be sent.';

-- As before (migration 0048), and `ready` to `review`: the bank's late answer says that it executed the refund.
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
    ('failed', 'ready')
);

-- As before (migration 0018), and what may be sent again goes to a person. An `unknown` refund about which the bank is asked stays:
-- the next inquiry settles it, or finds the contradiction. What is being sent again is uncertain from now on.
create or replace function refundd.late_evidence_makes_a_version() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if new.outcome = 'succeeded' then
        update refundd.refunds r
           set version = r.version + 1, state = 'review', reason = 'said_paid: an answer that came late says that the bank executed this refund'
         where r.id = new.refund_id and (r.state = 'ready' or (r.state = 'unknown' and r.inquire_at is null));
        if found then
            return null;
        end if;
    end if;
    update refundd.refunds r
       set version = r.version + 1,
           uncertain_at = case when new.outcome = 'succeeded' and r.state = 'sending' then coalesce(r.uncertain_at, clock_timestamp()) else r.uncertain_at end
     where r.id = new.refund_id;
    return null;
end $$;

-- A try to settle whose commit was not seen may still be under way. The next try waits for its rows, and must then see its lines.
alter function refundd.send_is_kept volatile;

create function refundd.inquiry_is_kept(refund bigint, number integer) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return exists (select from refundd.attempts a
                    where a.refund_id = refund and a.kind = 'inquiry' and a.number = inquiry_is_kept.number);
end $$;

comment on function refundd.inquiry_is_kept is 'Whether the journal has the outcome of the inquiry with this number.';

-- As before (migration 0036), and what is sent anew has no reference of the bank: the next send has a reference of its own.
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
               bank_ref = case when next = 'ready' then null else r.bank_ref end,
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

-- As before (migration 0040), and such a reference stays in the event.
create or replace function refundd.refunds_write_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    verb     constant text := case when new.channel <> old.channel then 'moved by ' when new.state = 'cancelled' and old.state = 'ready' then 'cancelled by '
                                   else 'decided by ' end;
    -- `VERB WHO`, or `VERB WHO: WHY`. A statement by hand may name nobody. `session_user` is a `name`, and would cut the text to 63 bytes.
    decision constant text := case when starts_with(new.reason, verb) then substr(new.reason, length(verb) + 1) else session_user::text end;
    author   constant text := split_part(decision, ': ', 1);
    why      constant text := nullif(substr(decision, length(author) + 3), '');
begin
    if new.channel <> old.channel then
        insert into refundd.events (kind, channel, refund_id, who, before, after, reason)
        select side.kind, side.channel, new.id, author,
               jsonb_build_object('channel', old.channel, 'request_id', old.request_id, 'version', old.version),
               jsonb_build_object('channel', new.channel, 'request_id', new.request_id, 'version', new.version), why
          from (values (1, 'moved_out', old.channel), (2, 'moved_in', new.channel)) as side (nth, kind, channel) order by side.nth;
        return null;
    end if;
    insert into refundd.events (kind, channel, refund_id, who, before, after, reason)
    values (case verb when 'cancelled by ' then 'cancelled' else 'decided' end, new.channel, new.id, author,
            jsonb_strip_nulls(jsonb_build_object('state', old.state, 'version', old.version,
                                                 'bank_ref', case when new.bank_ref is null then old.bank_ref end)),
            jsonb_build_object('state', new.state, 'version', new.version), why);
    return null;
end $$;

-- As before (migration 0051), and a resend that is taken back, which becomes `unknown` again, leaves a line like any other claim.
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
    if not (old.state = 'sending' and new.state in ('ready', 'unknown') or old.state in ('unknown', 'accepted') and new.state not in (old.state, 'sending'))
       or exists (select from refundd.attempts a
                   where a.refund_id = new.id and a.finished_at = now() and a.lease_epoch = old.lease_epoch and a.moved_to = new.state
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

-- Claims, and sends that ended in any other state than `ready` and `unknown`, keep all this and do not call the function.
create or replace trigger refunds_move_with_a_line after update on refundd.refunds
    for each row when (not (new.reason is null and new.uncertain_at is not distinct from old.uncertain_at
                            and case when old.state = 'sending' then new.state not in ('ready', 'unknown') and new.first_sent_at is not distinct from old.first_sent_at
                                     else new.state = 'sending' and (old.first_sent_at is null or new.first_sent_at is not distinct from old.first_sent_at) end))
    execute function refundd.moves_are_in_the_journal();

revoke execute on function refundd.was_said_paid, refundd.inquiry_is_kept from public;
