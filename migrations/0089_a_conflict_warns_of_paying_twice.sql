-- The hint of RD001 could make one refund two. It said "use another", also to a retry whose payload has a new time stamp: that retry is the same
-- refund, and under another reference it is paid a second time.

-- As before (migration 0074), but for the hint.
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
        or nullif(kept.payload, 'null') is distinct from nullif(enqueue.payload, 'null') then
        raise exception 'refund_ref "%" is already taken by % with other content', enqueue.refund_ref,
                case when kept.channel <> all (mine) then 'a refund' else 'refund ' || kept.id end
            using errcode = 'RD001',
                  hint = 'Is it the same refund? Then it is saved already, and under another ref it would be paid twice. Take another ref only for another refund.',
                  -- Only values that a producer may read are shown.
                  detail = case when kept.channel <> all (mine) then 'It is a refund of a channel that this role may not use.'
                                else 'What differs: ' || concat_ws(', ',
                       case when enqueue.channel is distinct from kept.channel and enqueue.channel is distinct from kept.saved_channel
                            then format('channel (saved %s, sent %s)', kept.channel, enqueue.channel) end,
                       case when kept.payment_ref is distinct from enqueue.payment_ref then 'payment_ref' end,
                       case when kept.amount_minor is distinct from enqueue.amount_minor then 'amount_minor' end,
                       case when kept.currency is distinct from enqueue.currency then 'currency' end,
                       case when nullif(kept.payload, 'null') is distinct from nullif(enqueue.payload, 'null') then 'payload' end) || '.' end;
    end if;
    id := kept.id;
    state := kept.state;
    created := false;
end $$;
