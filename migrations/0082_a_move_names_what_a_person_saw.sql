-- A repeated move undid somebody else's move back: it named no version of the refund, as decisions of people do.

-- Nodes of the last version call it without `seen`: then a refund of any version moves, as before.

-- As before (migration 0058). `seen` has the version of each of `refunds` that the person saw, or null where the person named none.
create or replace function refundd.move(refunds bigint[], from_channel text, to_channel text, why text, who text,
                                        seen integer[] default null) returns setof refundd.refunds
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    target refundd.channels%rowtype;
    able   bigint[];
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

revoke execute on function refundd.move(bigint[], text, text, text, text, integer[]) from public;

-- The roles that may call it go on doing so.
do $$
declare
    role regrole;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = to_regprocedure('refundd.move(bigint[], text, text, text, text)') and a.grantee not in (0, n.proowner) loop
        execute format('grant execute on function refundd.move(bigint[], text, text, text, text, integer[]) to %s', role);
    end loop;
end $$;

drop function if exists refundd.move(bigint[], text, text, text, text);

comment on function refundd.move is 'Moves those of these refunds from one channel to another of which no byte ever left, and which have the versions that a person saw, if one is given; each under a new request id. Writes that to the journal. Answers them.';
