-- A bank may contradict itself. When its answer "executed" came too late to move a refund, it stood in the journal alone: an
-- inquiry that found no such refund made the refund `ready` all the same, and it was sent again. From now on such a refund goes to a
-- person. The same if the late answer meets a refund that is `ready` again, or waits to be sent again under its key. A refund that
-- is being sent again goes to a person in place of `ready` and `failed`, and in place of `unknown` if it would be resent.
--
-- Four smaller mends stand below, because they replace functions of the same paths: what a repeated settlement sees, the bank's reference
-- after a decision, the line of a resend that is taken back, and the bound of an amount on nodes.

-- Whether the bank said that it executed a refund, or, with `or_took`, at least that it took the refund, since people last decided that
-- it may be sent. Volatile, so that it sees what was committed while its statement waited for a row.
create function refundd.was_said_paid(refund bigint, or_took boolean) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return exists (
        select from refundd.attempts a
         where a.refund_id = refund and a.kind in ('send', 'inquiry') and (a.outcome = 'succeeded' or (or_took and a.outcome = 'accepted'))
           and a.id > coalesce((select max(d.id) from refundd.attempts d
                                 where d.refund_id = refund and d.kind = 'manual' and d.moved_to = 'ready'), 0));
end $$;

comment on function refundd.was_said_paid is 'Whether the bank said that it executed a refund, or took it, since people last decided that it may be sent.';

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

-- As before (migration 0051), and no node makes a refund `ready` that the bank has, nor does one of the last version. In place of
-- `unknown`, to be sent again, such a refund goes to a person.
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
    if old.state = 'sending' and new.state = 'unknown' and new.inquire_at is null and refundd.was_said_paid(old.id, true) then
        new.state := 'review';
        new.reason := 'said_paid: an answer that came late says that the bank has this refund';
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
        if old.state = 'unknown' and refundd.was_said_paid(old.id, true) then
            raise exception 'the bank has refund % by an answer of its own, so it cannot become ready', old.id
                using errcode = 'RD002', hint = 'It goes to `review`, where people decide.';
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

-- As before (migration 0018), and what may be sent again goes to a person. An `unknown` refund about which the bank is asked stays:
-- the next inquiry settles it, or finds the contradiction. What is being sent again, and what failed, is uncertain from now on.
create or replace function refundd.late_evidence_makes_a_version() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    -- `accepted` and then `rejected` is no contradiction; `accepted` and then sent again would be a second refund.
    is_paid constant boolean := new.outcome = 'succeeded';
    is_had  constant boolean := new.outcome in ('succeeded', 'accepted');
    r       refundd.refunds;
begin
    -- Whoever holds the row may be about to make it `ready`: wait, and look at what it is then.
    select * into r from refundd.refunds f where f.id = new.refund_id for no key update;
    if is_had and (r.state = 'ready' or (r.state = 'unknown' and r.inquire_at is null)) then
        update refundd.refunds f
           set version = f.version + 1, state = 'review',
               reason = format('said_paid: an answer that came late says that the bank has this refund: %s', new.outcome)
         where f.id = r.id returning f.* into r;
        perform refundd.recovery_moved(r, 'said_paid');
    else
        update refundd.refunds f
           set version = f.version + 1,
               uncertain_at = case when (is_had and f.state = 'sending') or (is_paid and f.state = 'failed') then coalesce(f.uncertain_at, clock_timestamp())
                                   else f.uncertain_at end
         where f.id = new.refund_id;
    end if;
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

-- As before (migration 0036), and what the bank has rejected and people send anew has no reference: the next send has one of its own.
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
               bank_ref = case when next = 'ready' and r.state = 'failed' and r.uncertain_at is null then null else r.bank_ref end,
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

-- As before (migration 0049), and the bound of an amount holds for nodes, too: the file of a node may be older than what the others
-- have published, or lack the channel.
create or replace function refundd.channel_is_one_that_nodes_run() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    stranger text;
    bound    bigint;
    is_known boolean;
    has_room boolean;
    brought  bigint;
    too_high record;
begin
    select named.channel, c.max_backlog, c.channel is not null, c.full_since is null, named.n into stranger, bound, is_known, has_room, brought
      from (select s.channel, count(*) as n from saved s group by s.channel) named
      left join refundd.channels c on c.channel = named.channel
     where c.channel is null or c.full_since is not null or named.n > c.max_backlog or c.settings ? 'max_amount_minor'
     order by c.channel is not null, c.full_since is null, (named.n > c.max_backlog) is not true
     limit 1;
    if not found then
        return null;
    end if;
    if not is_known then
        raise exception 'insert on table "refunds" violates foreign key constraint "refunds_channel_is_one_that_nodes_run"'
            using errcode = 'foreign_key_violation', detail = format('No node ever ran the channel "%s".', stranger),
                  hint = 'Channels are named in the nodes'' configuration file, [channel.NAME].',
                  schema = 'refundd', table = 'refunds', constraint = 'refunds_channel_is_one_that_nodes_run';
    end if;
    select s.channel, s.currency, s.amount_minor, c.settings -> 'max_amount_minor' ->> s.currency as most into too_high
      from saved s
      join refundd.channels c on c.channel = s.channel
     where not refundd.amounts_are_within_bounds(c.settings -> 'max_amount_minor', s.currency, s.amount_minor)
     limit 1;
    if found then
        raise exception 'amount_minor is %, and channel "%" takes %', too_high.amount_minor, too_high.channel,
            case when too_high.most is null then 'no ' || too_high.currency else 'at most ' || too_high.most || ' of ' || too_high.currency end
            using errcode = 'check_violation', hint = 'Give a lower amount, or raise max_amount_minor in the channel''s configuration.',
                  schema = 'refundd', table = 'refunds', column = 'amount_minor', constraint = 'refunds_amount_is_within_the_channels_bound';
    end if;
    if has_column_privilege(session_user, 'refundd.channels', 'full_since', 'update') then
        return null;
    end if;
    if not has_room then
        raise exception 'channel "%" already has max_backlog = % refunds waiting', stranger, bound
            using errcode = 'RD005', hint = 'Try again later, or raise max_backlog in the channel''s configuration.';
    end if;
    if brought > bound then
        raise exception 'channel "%" takes max_backlog = % refunds, and this statement brings %', stranger, bound, brought
            using errcode = 'RD005', hint = 'Save fewer refunds in one statement, or raise max_backlog in the channel''s configuration.';
    end if;
    return null;
end $$;

revoke execute on function refundd.was_said_paid, refundd.inquiry_is_kept from public;

-- A role of nodes may call them from now on, also before config/node-role.sql is run again: moves of the last version's nodes call one.
do $$
declare
    kept record;
begin
    for kept in
        select distinct a.grantee::regrole as role
          from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
         where n.oid = 'refundd.decide'::regproc and a.grantee not in (0, n.proowner)
    loop
        execute format('grant execute on function refundd.was_said_paid, refundd.inquiry_is_kept to %s', kept.role);
    end loop;
end $$;
