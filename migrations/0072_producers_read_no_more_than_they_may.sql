-- Three faults of the functions that producers call.

-- Only superusers may read pg_authid. Where the owner of the schema is no superuser, every statement of a bound producer failed with
-- `permission denied for table pg_authid`. A call of refundd.enqueue() by a producer that is not bound failed, too, from the sixth
-- one in a session on: only then does the plan keep the look at this table. Everybody may read pg_roles.
-- And the name of the role was read as SQL reads names: a role "Shop" failed, or had the bindings of a role "shop". The rest of the
-- function is as in migration 0029.
create or replace function refundd.channels_of_producer() returns text[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    me   oid := to_regrole(quote_ident(session_user));
    mine text[];
begin
    select array_agg(distinct p.channel) into mine
      from refundd.producers p
     where case when p.role = session_user then true
                else coalesce(pg_has_role(me, to_regrole(quote_ident(p.role)), 'member'), false) end;
    if mine is not null and (select a.rolsuper from pg_roles a where a.oid = me) then
        return null;
    end if;
    return mine;
end $$;

-- The conflict of a repeated ref showed the saved amount and currency, which a producer may not read. Now it names these fields
-- alone. The rest of the function is as in migration 0052.
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
            using errcode = 'RD001', hint = 'A refund_ref names one refund for ever; use another, or send the same content.',
                  -- Only values that a producer may read are shown.
                  detail = case when kept.channel <> all (mine) then 'It is a refund of a channel that this role may not use.'
                                else 'What differs: ' || concat_ws(', ',
                       case when enqueue.channel is distinct from kept.channel and enqueue.channel is distinct from kept.saved_channel
                            then format('channel (saved %s, sent %s)', kept.channel, enqueue.channel) end,
                       case when kept.payment_ref is distinct from enqueue.payment_ref then 'payment_ref' end,
                       case when kept.amount_minor is distinct from enqueue.amount_minor then 'amount_minor' end,
                       case when kept.currency is distinct from enqueue.currency then 'currency' end,
                       case when kept.payload is distinct from enqueue.payload then 'payload' end) || '.' end;
    end if;
    id := kept.id;
    state := kept.state;
    created := false;
end $$;
