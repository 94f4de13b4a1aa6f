-- publish_addresses: adds the addresses of the banks of a node's channels that Postgres does not have, and answers how many.
-- :channel, :endpoint, :inquiry   the addresses, one array each
-- :node                           who adds them
with added as (
    insert into refundd.addresses (channel, endpoint, inquiry, published_by)
    select p.channel, p.endpoint, p.inquiry, :node
      from unnest(:channel::text[], :endpoint::text[], :inquiry::text[]) as p (channel, endpoint, inquiry)
     where not exists (select from refundd.addresses a
                        where a.channel = p.channel and a.endpoint = p.endpoint and a.inquiry = p.inquiry)
     order by p.channel
        on conflict on constraint addresses_are_numbered_once do nothing
    returning channel
), meant as (
    -- The channel may be published with this address only later. Until then recovery must not take what is sent there for refunds
    -- of another address: it waits a minute after each change.
    update refundd.channels c set address_since = now() where c.channel in (select channel from added)
)
select count(*) as added from added
