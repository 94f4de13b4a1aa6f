-- Every producer saw the refunds of all others, and could save through every channel. The owner of the schema can now bind a
-- producer to channels. Then it reads and saves only refunds of those. A producer that is not bound does as before, so
-- nothing changes before the owner binds one. The table is put under row-level security with the first binding and not here,
-- because Postgres then refuses COPY into it for every role but the owner.
--
-- And a plain insert ignored max_backlog. It now obeys the flag that HTTP obeys, in the look-up of the channel that each
-- statement makes anyway. A role that may set the flag is a node's or the owner's: nodes look at it when they save.
create table refundd.producers (
    role    name not null,
    channel text not null,
    constraint producers_pkey primary key (role, channel)
);

comment on table refundd.producers is 'Which channels a producer is bound to. A role without a row here, and without membership in one that has, may use all. refundd.bind_producer() writes it.';
comment on column refundd.producers.role is 'The role that the producer logs in with, or one that it is a member of.';
comment on column refundd.producers.channel is 'A channel whose refunds it may save and read.';

-- By the role that logged in, since `set role` could take another one. Superusers are members of all roles, and bound by none.
-- In plpgsql, which keeps its plans: every statement of a producer calls it.
create function refundd.channels_of_producer() returns text[]
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    me   oid := session_user::regrole;
    mine text[];
begin
    select array_agg(distinct p.channel) into mine
      from refundd.producers p
     where case when p.role = session_user then true
                else coalesce(pg_has_role(me, to_regrole(quote_ident(p.role)), 'member'), false) end;
    if mine is not null and (select a.rolsuper from pg_authid a where a.oid = me) then
        return null;
    end if;
    return mine;
end $$;

comment on function refundd.channels_of_producer is 'The channels that the role of this session is bound to; null if it may use all.';

create function refundd.bind_producer(producer name, channels text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (select from pg_roles r where r.rolname = producer)
       or not exists (select from pg_roles r where r.rolname = 'refundd_producer')
       or not pg_has_role(producer, 'refundd_producer', 'member') then
        raise exception 'role "%" is no member of refundd_producer', producer
            using errcode = 'invalid_parameter_value',
                  hint = format('Run config/producer-role.sql, and `grant refundd_producer to %I`.', producer);
    end if;
    perform set_config('lock_timeout', '3s', true);
    delete from refundd.producers p where p.role = producer;
    insert into refundd.producers (role, channel) select distinct producer, c from unnest(channels) c;
    grant execute on function refundd.channels_of_producer to refundd_producer;
    if not exists (select from refundd.producers) then
        alter table refundd.refunds disable row level security;
        return;
    end if;
    if not exists (select from pg_policy p where p.polrelid = 'refundd.refunds'::regclass) then
        create policy roles_use_all_channels on refundd.refunds using (true);
        create policy producers_keep_to_their_channels on refundd.refunds as restrictive to refundd_producer
            using (coalesce(channel = any ((select refundd.channels_of_producer())::text[]), true));
    end if;
    if not (select c.relrowsecurity from pg_class c where c.oid = 'refundd.refunds'::regclass) then
        alter table refundd.refunds enable row level security;
    end if;
end $$;

comment on function refundd.bind_producer is 'Lets a producer save and read only refunds of these channels; an empty array lets it use all again. For the owner of the schema.';

-- As before (migration 0012), and the channel has room.
create or replace function refundd.channel_is_one_that_nodes_run() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    stranger text;
    bound    bigint;
    is_known boolean;
begin
    select named.channel, c.max_backlog, c.channel is not null into stranger, bound, is_known
      from (select distinct channel from saved) named
      left join refundd.channels c on c.channel = named.channel
     where c.channel is null or c.full_since is not null
     order by c.channel is not null
     limit 1;
    if not found then
        return null;
    end if;
    if is_known then
        if not has_column_privilege(session_user, 'refundd.channels', 'full_since', 'update') then
            raise exception 'channel "%" already has max_backlog = % refunds waiting', stranger, bound
                using errcode = 'RD005', hint = 'Try again later, or raise max_backlog in the channel''s configuration.';
        end if;
        return null;
    end if;
    raise exception 'insert on table "refunds" violates foreign key constraint "refunds_channel_is_one_that_nodes_run"'
        using errcode = 'foreign_key_violation', detail = format('No node ever ran the channel "%s".', stranger),
              hint = 'Channels are named in the nodes'' configuration file, [channel.NAME].',
              schema = 'refundd', table = 'refunds', constraint = 'refunds_channel_is_one_that_nodes_run';
end $$;

-- As before (migration 0007), for the channels of the producer.
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
    if (kept.channel, kept.payment_ref, kept.amount_minor, kept.currency)
        is distinct from (enqueue.channel, enqueue.payment_ref, enqueue.amount_minor, enqueue.currency)
        or kept.payload is distinct from enqueue.payload then
        raise exception 'refund_ref "%" is already taken by % with other content', enqueue.refund_ref,
                case when kept.channel <> all (mine) then 'a refund' else 'refund ' || kept.id end
            using errcode = 'RD001', hint = 'A refund_ref names one refund for ever; use another, or send the same content.';
    end if;
    id := kept.id;
    state := kept.state;
    created := false;
end $$;

revoke execute on function refundd.channels_of_producer, refundd.bind_producer from public;
