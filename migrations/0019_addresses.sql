-- Evidence belongs to the place where it was made. A refund that one bank may have executed was asked about, or sent
-- again, wherever its channel went by then: after a channel had moved, the new bank answered "not found", and all that
-- the old one had paid was paid again. Now each row keeps where it may have been sent, as the number of an address.
-- Nodes that do not know these columns leave `sent_to` null; it then counts as the first address of its channel.
create table refundd.addresses (
    address      integer     not null generated always as identity,
    channel      text        not null,
    endpoint     text        not null,
    inquiry      text        not null,
    published_by text        not null,
    published_at timestamptz not null default now(),
    constraint addresses_pkey primary key (address),
    constraint addresses_are_numbered_once unique (channel, endpoint, inquiry)
);

comment on table refundd.addresses is 'Where the bank of each channel is, or was: every address that a node ever published. Without secrets.';
comment on column refundd.addresses.address is 'Its number, which stands in refunds.sent_to; the first of a channel is its lowest.';
comment on column refundd.addresses.channel is 'The channel.';
comment on column refundd.addresses.endpoint is 'Where refunds are POSTed: scheme, host, port if it is not the usual one, and path. The query, where some banks want a key, is no part of it.';
comment on column refundd.addresses.inquiry is 'Where the bank is asked, in the same form, {request_id} as it stands in the file; empty if it cannot be asked.';
comment on column refundd.addresses.published_by is 'The node that published it first.';
comment on column refundd.addresses.published_at is 'When it did.';

create function refundd.addresses_are_never_changed() returns trigger language plpgsql as $$
begin
    raise exception 'refundd.addresses is append-only: % is refused', lower(tg_op)
        using errcode = 'RD003', hint = 'Refunds name them.';
end $$;

create trigger addresses_are_never_changed before update or delete or truncate on refundd.addresses
    for each statement execute function refundd.addresses_are_never_changed();

-- What tells one address from another; src/channel/address.rs says the same, and a test holds the two equal.
create function refundd.address_of(url text) returns text
    language sql immutable parallel safe
return regexp_replace(lower(substring(url from '^[^/]+://[^/?#]*')), '^(http://.*):80$|^(https://.*):443$', '\1\2')
       || coalesce(nullif(substring(url from '^[^/]+://[^/?#]*([^?#]*)'), ''), '/');

comment on function refundd.address_of is 'An address without its query: scheme and host in small letters, the port if it is not the usual one, the path.';

alter table refundd.channels
    add column address       integer,
    add column address_since timestamptz not null default now();

comment on column refundd.channels.address is 'Where its bank is, in refundd.addresses, as the node has it that published last; null if that node does not know the column.';
comment on column refundd.channels.address_since is 'Since when it is there: refunds that may have been sent elsewhere are shown to a person a minute later.';

alter table refundd.refunds add column sent_to integer;

comment on column refundd.refunds.sent_to is 'Where it may have been sent, in refundd.addresses; while that is uncertain, it is asked about and sent again only there. Null in ready.';

insert into refundd.addresses (channel, endpoint, inquiry, published_by, published_at)
select c.channel, refundd.address_of(c.endpoint), coalesce(refundd.address_of(c.settings -> 'inquiry' ->> 'url'), ''), c.published_by, c.published_at
  from refundd.channels c
 where refundd.address_of(c.endpoint) is not null
 order by c.channel;

update refundd.channels c set address = a.address from refundd.addresses a where a.channel = c.channel;

-- Whether a refund that was sent there is asked about, or sent again, at the bank that it may have been sent to.
create function refundd.is_where_it_was_sent(sent_to integer, present integer, channel text, is_asked boolean) returns boolean
    language sql stable parallel safe
return case
    when sent_to = present then true
    -- Nobody ever published where this channel goes.
    when not exists (select from refundd.addresses a where a.channel = is_where_it_was_sent.channel) then true
    else coalesce((
        select was.endpoint = here.endpoint and (not is_asked or was.inquiry in ('', here.inquiry))
          from refundd.addresses was, refundd.addresses here
         where here.address = present
           and was.address = coalesce(sent_to, (select min(a.address) from refundd.addresses a
                                                 where a.channel = is_where_it_was_sent.channel))), false)
end;

comment on function refundd.is_where_it_was_sent is 'Whether `present` is the bank that a refund may have been sent to, and, where it is to be asked, the address at which that is asked.';

-- What is ready was provably not executed, or a person has it sent again: it goes wherever its channel goes. A trigger,
-- so that no node that does not know the column leaves an old address with a new send.
create function refundd.what_is_ready_was_sent_nowhere() returns trigger language plpgsql as $$
begin
    new.sent_to := null;
    return new;
end $$;

create trigger refunds_ready_were_sent_nowhere before update on refundd.refunds
    for each row when (new.state = 'ready' and old.state <> 'ready' and new.sent_to is not null)
    execute function refundd.what_is_ready_was_sent_nowhere();
