-- A refund stayed in the channel that it was saved for. When a bank was down for days, its backlog could only be cancelled and
-- saved anew under other refs. Now one function moves refunds of which no byte ever left, and no other statement may:
-- docs/decisions/0028-a-move-mints-a-new-key.md.
--
-- Nodes of the last version are safe beside moves: their claims name the channel of the bucket, and so leave out a refund
-- that was moved. They do not know `saved_channel`: they answer "other content" to a repeated save of a moved refund.
alter table refundd.refunds add column saved_channel text;

comment on column refundd.refunds.saved_channel is 'The channel that a producer saved it for, if it was moved since; a repeated save may name either. Null if it was never moved.';
comment on column refundd.refunds.channel is 'The channel it goes out through. refundd.move changes it.';
comment on column refundd.refunds.request_id is 'The Idempotency-Key the bank sees, the same on every attempt. A move to another channel mints a new one.';

-- Whether the journal has a request for this refund of which a byte may have left. The row says it, too (first_sent_at), except
-- of sends by nodes from before migration 9.
create function refundd.journal_has_a_send(refund bigint) returns boolean
    language sql stable security definer set search_path = pg_catalog, pg_temp
return exists (select from refundd.attempts a
                where a.refund_id = refund
                  and (a.kind = 'inquiry' or (a.kind = 'send' and (a.started_at is not null or a.outcome <> 'not_executed'))));

comment on function refundd.journal_has_a_send is 'Whether the journal has a request to a bank about this refund of which a byte may have left.';

create function refundd.refund_holds_card_number(r refundd.refunds) returns boolean
    language sql stable security definer set search_path = pg_catalog, pg_temp
return refundd.holds_card_number(r.refund_ref) or refundd.holds_card_number(r.payment_ref) or coalesce(refundd.holds_card_number(r.payload), false);

comment on function refundd.refund_holds_card_number is 'Whether a text of this refund holds what may be the number of a payment card.';

-- Why a refund is not cancelled or moved with many others: its state; sent_before; for a move also other_channel,
-- deadline_passed, amount_too_high, card_number. Null if it goes. Postgres writes this expression into the statement that calls
-- it, which makes long backlogs cheap to count; that needs the caller's rights and no setting of its own.
create function refundd.why_it_stays(r refundd.refunds, from_channel text, target refundd.channels) returns text
    language sql stable
return case
    when r.channel <> from_channel then 'other_channel'
    when r.state <> 'ready' then r.state
    -- A refund that was never leased was never sent.
    when r.first_sent_at is not null or (r.lease_epoch > 0 and refundd.journal_has_a_send(r.id)) then 'sent_before'
    when (target).channel is null then null
    when r.deadline_at <= now() then 'deadline_passed'
    when (target).settings ? 'max_amount_minor'
         and r.amount_minor > coalesce(((target).settings -> 'max_amount_minor' ->> r.currency)::bigint, -1) then 'amount_too_high'
    -- One look for 13 digits first: nearly all references have none.
    when (r.payload is not null or (r.refund_ref || ' # ' || r.payment_ref) ~ '[0-9](?:[^[:alnum:]:,;]?[0-9]){12}')
         and (target).settings ->> 'card_numbers' is distinct from 'accepted' and refundd.refund_holds_card_number(r) then 'card_number'
end;

comment on function refundd.why_it_stays is 'Why a refund is not cancelled with many others, or, with a target, not moved there; null if nothing keeps it.';

create function refundd.backlog_room(of_channel text) returns bigint
    language sql stable security definer set search_path = pg_catalog, pg_temp
return (select c.max_backlog - (select count(*) from (
                   select from refundd.refunds r where r.channel = c.channel and r.state = 'ready' limit c.max_backlog) backlog)
          from refundd.channels c where c.channel = of_channel and c.max_backlog is not null);

comment on function refundd.backlog_room is 'How many more ready refunds a channel may have by its max_backlog; null without a bound.';

-- Moves those of these refunds that may go, in one statement: the row, a line in the journal of each of the two channels, and by
-- a trigger an event of each. Where the target has room for some only, the first ids go.
create function refundd.move(refunds bigint[], from_channel text, to_channel text, why text, who text) returns setof refundd.refunds
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    target refundd.channels%rowtype;
    room   bigint;
begin
    perform refundd.people_give_reasons('a move', why, who);
    if from_channel = to_channel then
        raise exception 'channel "%" is both ends of a move', to_channel
            using errcode = 'invalid_parameter_value', hint = 'Name another channel to move to.';
    end if;
    select * into target from refundd.channels c where c.channel = to_channel;
    if not found or target.retired_at is not null then
        raise exception 'channel "%" is run by no node', to_channel
            using errcode = 'RD004', hint = 'Channels are named in the nodes'' configuration file, [channel.NAME].';
    end if;
    if target.max_backlog is not null then
        -- Of two moves to one channel the second counts what the first one has moved.
        perform pg_advisory_xact_lock('refundd.channels'::regclass::oid::integer, hashtext(to_channel));
        room := refundd.backlog_room(to_channel);
    end if;
    return query
    with picked as materialized (
        -- In the order of ids, so that two moves never wait for each other. A refund that a node claims meanwhile stays.
        select r.id from refundd.refunds r
         where r.id = any(refunds) and r.channel = from_channel and r.state = 'ready' and r.first_sent_at is null
           and refundd.why_it_stays(r, from_channel, target) is null
         order by r.id limit room for no key update
    ), moved as (
        update refundd.refunds r
           set channel = to_channel, saved_channel = coalesce(r.saved_channel, r.channel),
               -- Another bank knows nothing of the key, and this one may come back to it: no two banks see one key.
               request_id = gen_random_uuid(), version = r.version + 1,
               -- The wait for a retry, and the count of sends, were those of the old channel.
               attempts = 0, due_at = case when r.lease_epoch > 0 then least(r.due_at, now()) else r.due_at end,
               reason = 'moved by ' || who || ': ' || why
         where r.id = any(array(select p.id from picked p)) and r.channel = from_channel and r.state = 'ready' and r.first_sent_at is null
        returning r.*
    ), kept as (
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        select m.id, line.channel, 'manual', m.version - 1, m.lease_epoch, who, 'decided', 'ready', line.code, left(line.text, 500)
          from moved m
         cross join (values (1, from_channel, 'moved_out', 'to ' || to_channel || ': ' || why),
                            (2, to_channel, 'moved_in', 'from ' || from_channel || ': ' || why)) as line (nth, channel, code, text)
         order by m.id, line.nth
    )
    select * from moved;
end $$;

comment on function refundd.move is 'Moves those of these refunds from one channel to another of which no byte ever left, each under a new request id, and writes that to the journal. Answers them.';

-- As before (migration 0006), and a move is allowed: the channel and the key change together, while no byte has ever left.
-- Nobody but the owner of the schema has the right to update these columns.
create or replace function refundd.what_is_owed_never_changes() returns trigger language plpgsql as $$
begin
    if new.channel is distinct from old.channel and new.request_id is distinct from old.request_id
       and new.saved_channel = coalesce(old.saved_channel, old.channel) and new.version > old.version
       and old.state = 'ready' and new.state = 'ready' and old.first_sent_at is null and new.first_sent_at is null
       and (new.id, new.refund_ref, new.payment_ref, new.amount_minor, new.currency, new.created_at)
         = (old.id, old.refund_ref, old.payment_ref, old.amount_minor, old.currency, old.created_at)
       and new.payload is not distinct from old.payload then
        return new;
    end if;
    raise exception 'refund %: what is owed, to whom and under which key cannot be changed once saved', old.id
        using errcode = 'RD002',
              hint = 'Cancel this refund and save another under its own refund_ref, or move it to another channel: `refundd move`.';
end $$;

drop trigger if exists refunds_keep_what_is_owed on refundd.refunds;

create trigger refunds_keep_what_is_owed before update on refundd.refunds
    for each row when (
        old.id is distinct from new.id or old.refund_ref is distinct from new.refund_ref or old.channel is distinct from new.channel
        or old.payment_ref is distinct from new.payment_ref or old.amount_minor is distinct from new.amount_minor
        or old.currency is distinct from new.currency or old.request_id is distinct from new.request_id
        or old.payload is distinct from new.payload or old.created_at is distinct from new.created_at
        or old.saved_channel is distinct from new.saved_channel)
    execute function refundd.what_is_owed_never_changes();

-- As before (migration 0037), and a move is an event of both channels.
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
            jsonb_build_object('state', old.state, 'version', old.version),
            jsonb_build_object('state', new.state, 'version', new.version), why);
    return null;
end $$;

drop trigger if exists refunds_decided_or_cancelled_are_events on refundd.refunds;

create trigger refunds_decided_or_cancelled_are_events after update on refundd.refunds
    for each row when ((old.state = 'ready' and new.state = 'cancelled')
                       or (old.state in ('review', 'unknown', 'accepted', 'failed') and new.state <> old.state
                           and new.reason like 'decided by %' and new.reason is distinct from old.reason)
                       or old.channel is distinct from new.channel)
    execute function refundd.refunds_write_events();

-- As before (migration 0029), and a repeated save of a refund that was moved since is the same refund.
create or replace function refundd.enqueue(
    refund_ref text, channel text, payment_ref text, amount_minor bigint, currency text,
    payload jsonb default null, due_at timestamptz default null, deadline_at timestamptz default null,
    out id bigint, out state text, out created boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    lane refundd.channels%rowtype;
    kept refundd.refunds%rowtype;
    mine text[] := refundd.channels_of_producer();
begin
    if enqueue.channel <> all (mine) then
        raise exception 'role "%" may not use channel "%"', session_user, enqueue.channel
            using errcode = 'insufficient_privilege', hint = 'The owner of the schema binds a producer to its channels: refundd.bind_producer().';
    end if;
    select r.* into kept from refundd.refunds r where r.refund_ref = enqueue.refund_ref;
    if not found then
        select c.* into lane from refundd.channels c where c.channel = enqueue.channel;
        if not found or lane.retired_at is not null then
            raise exception 'channel "%" is run by no node', enqueue.channel
                using errcode = 'RD004', hint = 'Channels are named in the nodes'' configuration file, [channel.NAME].';
        end if;
        if lane.full_since is not null then
            raise exception 'channel "%" already has max_backlog = % refunds waiting', enqueue.channel, lane.max_backlog
                using errcode = 'RD005', hint = 'Try again later, or raise max_backlog in the channel''s configuration.';
        end if;
        insert into refundd.refunds as r (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_at, deadline_at)
        values (enqueue.refund_ref, enqueue.channel, enqueue.payment_ref, enqueue.amount_minor, enqueue.currency,
                enqueue.payload, coalesce(enqueue.due_at, now()), enqueue.deadline_at)
        on conflict on constraint refunds_ref_is_unique_for_ever do nothing
        returning r.id, r.state into enqueue.id, enqueue.state;
        if found then
            created := true;
            return;
        end if;
        -- Another transaction saved the same ref meanwhile; its row is committed by now.
        select r.* into strict kept from refundd.refunds r where r.refund_ref = enqueue.refund_ref;
    end if;
    -- due_at and deadline_at are wishes about time and may differ on a repeat; what is owed may not.
    if (kept.payment_ref, kept.amount_minor, kept.currency)
        is distinct from (enqueue.payment_ref, enqueue.amount_minor, enqueue.currency)
        or enqueue.channel is distinct from kept.channel and enqueue.channel is distinct from kept.saved_channel
        or kept.payload is distinct from enqueue.payload then
        raise exception 'refund_ref "%" is already taken by % with other content', enqueue.refund_ref,
                case when kept.channel <> all (mine) then 'a refund' else 'refund ' || kept.id end
            using errcode = 'RD001', hint = 'A refund_ref names one refund for ever; use another, or send the same content.';
    end if;
    id := kept.id;
    state := kept.state;
    created := false;
end $$;

revoke execute on function refundd.journal_has_a_send, refundd.refund_holds_card_number, refundd.why_it_stays, refundd.backlog_room, refundd.move from public;

-- A role of nodes may move from now on, also before config/node-role.sql is run again.
do $$
declare
    kept record;
begin
    for kept in
        select distinct a.grantee::regrole as role
          from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
         where n.oid = 'refundd.cancel'::regproc and a.grantee not in (0, n.proowner)
    loop
        execute format('grant execute on function refundd.journal_has_a_send, refundd.refund_holds_card_number, refundd.why_it_stays,
                        refundd.backlog_room, refundd.move to %s', kept.role);
    end loop;
end $$;
