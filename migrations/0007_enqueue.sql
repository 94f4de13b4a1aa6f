-- The way in for producers who would rather call than insert: safe to repeat, clear about conflicts.
-- It runs with refundd's rights, so EXECUTE on it is all a producer needs.
create function refundd.enqueue(
    refund_ref text, channel text, payment_ref text, amount_minor bigint, currency text,
    payload jsonb default null, due_at timestamptz default null, deadline_at timestamptz default null,
    out id bigint, out state text, out created boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    lane refundd.channels%rowtype;
    kept refundd.refunds%rowtype;
begin
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
        -- Somebody saved the same ref while we were inserting; their row is committed by now.
        select r.* into strict kept from refundd.refunds r where r.refund_ref = enqueue.refund_ref;
    end if;
    -- due_at and deadline_at are wishes about time and may differ on a repeat; what is owed may not.
    if (kept.channel, kept.payment_ref, kept.amount_minor, kept.currency)
        is distinct from (enqueue.channel, enqueue.payment_ref, enqueue.amount_minor, enqueue.currency)
        or kept.payload is distinct from enqueue.payload then
        raise exception 'refund_ref "%" is already taken by refund % with other content', enqueue.refund_ref, kept.id
            using errcode = 'RD001', hint = 'A refund_ref names one refund for ever; use another, or send the same content.';
    end if;
    id := kept.id;
    state := kept.state;
    created := false;
end $$;

comment on function refundd.enqueue is 'Saves one refund, or returns the one already saved under this refund_ref; raises RD001 if that one has other content, RD004 for an unknown channel, RD005 when its backlog is full.';

-- Functions are executable by everyone unless told otherwise.
revoke execute on function refundd.enqueue from public;
