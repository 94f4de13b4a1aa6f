-- A person decided that a refund had succeeded and noted the bank's reference with it. That note is a second commit, and it left the version. A
-- person who looked between the two saw no reference, and could replace the one that they never saw.
-- `refundd.move` moved refunds at any version where `seen` had fewer entries than there were refunds.

-- As before (migration 0084), but each note makes a version.
create or replace function refundd.note_bank_ref(refund bigint, reference text, who text, seen integer default null, why text default null)
returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    r   refundd.refunds;
    was text;
begin
    perform refundd.people_give_reasons('a bank reference of refund ' || refund, reference, who);
    if refundd.refused_character(reference) is not null or refundd.holds_card_number(reference) then
        raise exception 'a bank reference holds a hidden character or what looks like a card number'
            using errcode = 'invalid_parameter_value', hint = 'Write the reference as it stands on the bank''s statement.';
    end if;
    -- Held until the commit, so that no late answer brings a reference meanwhile.
    select * into r from refundd.refunds f where f.id = refund and f.state = 'succeeded' for no key update;
    if not found or seen <> r.version then
        return false;
    end if;
    was := r.bank_ref;
    if was = reference then
        return true;
    end if;
    if was is not null then
        if seen is null
           or not exists (select from refundd.attempts a where a.refund_id = r.id and a.kind = 'manual' and a.code = 'bank_ref_noted')
           or exists (select from refundd.attempts a
                       where a.refund_id = r.id and a.kind in ('send', 'inquiry') and a.outcome in ('succeeded', 'accepted')
                         and substring(a.message from '^.*; bank reference (.{1,200})$') = was) then
            return false;
        end if;
        perform refundd.people_give_reasons('another bank reference of refund ' || refund, why, who);
    end if;
    -- Whoever saw the version before must look again, also if this is the first note.
    update refundd.refunds f set bank_ref = reference, version = f.version + 1 where f.id = r.id;
    insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code, message)
    values (r.id, r.channel, 'manual', r.version, r.lease_epoch, who, 'decided', 'bank_ref_noted',
            left('bank reference ' || reference || coalesce(', before ' || was, '') || coalesce(': ' || why, ''), 500));
    insert into refundd.events (kind, channel, refund_id, who, before, after, reason)
    values ('bank_ref_noted', r.channel, r.id, who, case when was is not null then jsonb_build_object('bank_ref', was) end,
            jsonb_build_object('bank_ref', reference), why);
    return true;
end $$;

-- As before (migration 0082), but `seen` that does not fit to `refunds` moves nothing.
create or replace function refundd.move(refunds bigint[], from_channel text, to_channel text, why text, who text,
                                        seen integer[] default null) returns setof refundd.refunds
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    target refundd.channels%rowtype;
    able   bigint[];
    room   bigint;
begin
    perform refundd.people_give_reasons('a move', why, who);
    -- The bounds of the arrays, too: a version is found by its place.
    if seen is not null and (array_dims(seen) is distinct from array_dims(refunds)
                             or cardinality(refunds) <> (select count(distinct named.id) from unnest(refunds) as named (id))) then
        raise exception 'each refund of a move needs one entry of its own in `seen`: there are % refunds and % entries', cardinality(refunds), cardinality(seen)
            using errcode = 'invalid_parameter_value',
                  hint = 'Name each refund once, and at its place in `seen` the version that the person saw, or null for any version.';
    end if;
    if from_channel = to_channel then
        raise exception 'channel "%" is both ends of a move', to_channel
            using errcode = 'invalid_parameter_value', hint = 'Name another channel to move to.';
    end if;
    select * into target from refundd.channels c where c.channel = to_channel;
    if not found or target.retired_at is not null then
        raise exception 'channel "%" is run by no node', to_channel
            using errcode = 'RD004', hint = 'Channels are named in the nodes'' configuration file, [channel.NAME].';
    end if;
    -- Before the channel's row is locked: other changes of the channel wait for that.
    able := array(select r.id from refundd.refunds r
                   where r.id = any(refunds) and r.channel = from_channel and r.state = 'ready' and r.first_sent_at is null
                     and refundd.why_it_stays(r, from_channel, target) is null
                     and (seen is null or coalesce(seen[array_position(refunds, r.id)], r.version) = r.version));
    if target.max_backlog is not null then
        -- Of two moves to one channel the second counts what the first one has moved.
        perform from refundd.channels c where c.channel = to_channel for no key update;
        room := refundd.backlog_room(to_channel);
    end if;
    return query
    with picked as materialized (
        -- In the order of ids, so that two moves never wait for each other. A refund that a node claims meanwhile stays.
        select r.id from refundd.refunds r
         where r.id = any(able) and r.channel = from_channel and r.state = 'ready' and r.first_sent_at is null
           -- What was leased meanwhile may have been sent.
           and (r.lease_epoch = 0 or refundd.why_it_stays(r, from_channel, target) is null)
           -- What moved away and back meanwhile has another version.
           and (seen is null or coalesce(seen[array_position(refunds, r.id)], r.version) = r.version)
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
