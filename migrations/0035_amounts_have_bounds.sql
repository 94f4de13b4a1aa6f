-- A producer could insert a refund of any amount. A channel may now have the key max_amount_minor, the highest amount of one
-- refund for each currency; nodes publish it among the channel's settings. HTTP and import check it by the node's own file.
-- Here it holds for roles other than nodes, in the look-up of the channel that each statement makes anyway.

create function refundd.amounts_are_within_bounds(bounds jsonb, currency text, amount_minor bigint) returns boolean
    language sql immutable parallel safe
return bounds is null or amount_minor <= coalesce((bounds ->> currency)::bigint, -1);

comment on function refundd.amounts_are_within_bounds is 'Whether an amount is at most what a channel''s max_amount_minor allows; a currency that it does not name has no amount.';

-- As before (migration 0029), and no amount is too high.
create or replace function refundd.channel_is_one_that_nodes_run() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    stranger text;
    bound    bigint;
    is_known boolean;
    has_room boolean;
    too_high record;
begin
    select named.channel, c.max_backlog, c.channel is not null, c.full_since is null into stranger, bound, is_known, has_room
      from (select distinct channel from saved) named
      left join refundd.channels c on c.channel = named.channel
     where c.channel is null or c.full_since is not null or c.settings ? 'max_amount_minor'
     order by c.channel is not null, c.full_since is null
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
    if has_column_privilege(session_user, 'refundd.channels', 'full_since', 'update') then
        return null;
    end if;
    if not has_room then
        raise exception 'channel "%" already has max_backlog = % refunds waiting', stranger, bound
            using errcode = 'RD005', hint = 'Try again later, or raise max_backlog in the channel''s configuration.';
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
    return null;
end $$;

revoke execute on function refundd.amounts_are_within_bounds from public;
