-- Two laws that were checked row by row cost a third of a bulk insert and a sixth of a drain. They hold as
-- before; only where they are looked at has changed.

-- The moves of a refund that goes the plain way, ready to sending to succeeded, need no function called: they are
-- legal, and leave nothing to be remembered or forgotten. Whether a refund that is asked about makes them is still looked at.
drop trigger refunds_make_only_legal_moves on refundd.refunds;

create trigger refunds_make_only_legal_moves before update on refundd.refunds
    for each row when (
        old.state is distinct from new.state
        and (new.inquire_at is not null
             or not (old.state = 'ready' and new.state = 'sending' or old.state = 'sending' and new.state = 'succeeded')))
    execute function refundd.only_legal_moves();

-- A refund's channel is looked up once for each statement and channel, and not once for each row. The same
-- error under the same name. That no channel goes away afterwards is the second trigger's part: none ever did,
-- refundd retires them.
create function refundd.channel_is_one_that_nodes_run() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    stranger text;
begin
    select named.channel into stranger
      from (select distinct channel from saved) named
     where not exists (select from refundd.channels c where c.channel = named.channel)
     limit 1;
    if found then
        raise exception 'insert on table "refunds" violates foreign key constraint "refunds_channel_is_one_that_nodes_run"'
            using errcode = 'foreign_key_violation', detail = format('No node ever ran the channel "%s".', stranger),
                  hint = 'Channels are named in the nodes'' configuration file, [channel.NAME].',
                  schema = 'refundd', table = 'refunds', constraint = 'refunds_channel_is_one_that_nodes_run';
    end if;
    return null;
end $$;

revoke execute on function refundd.channel_is_one_that_nodes_run from public;

create function refundd.channels_are_never_deleted() returns trigger language plpgsql as $$
begin
    raise exception 'refundd.channels is kept for ever: % is refused', lower(tg_op)
        using errcode = 'RD002', hint = 'Refunds name it. A channel that no node runs is retired by itself.';
end $$;

create trigger channels_are_never_deleted before delete or truncate on refundd.channels
    for each statement execute function refundd.channels_are_never_deleted();

create trigger channels_are_never_renamed before update of channel on refundd.channels
    for each row when (old.channel is distinct from new.channel)
    execute function refundd.channels_are_never_deleted();

create trigger refunds_channel_is_one_that_nodes_run after insert on refundd.refunds
    referencing new table as saved
    for each statement execute function refundd.channel_is_one_that_nodes_run();

alter table refundd.refunds drop constraint refunds_channel_is_one_that_nodes_run;
