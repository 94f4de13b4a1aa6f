-- watch_backlog: marks the channels whose backlog is full, and those where it is not any more. No lock keeps the bound: saves
-- between two counts may pass it.
with found as (
    select b.channel, (select count(*) from (
               select from refundd.refunds r where r.channel = b.channel and r.state = 'ready' limit b.max_backlog) backlog
           ) >= b.max_backlog as is_full
      from refundd.channels b where b.max_backlog is not null
), changed as (
    -- A row that somebody has locked waits for the next count, and keeps no other channel from its own.
    select c.channel, found.is_full from refundd.channels c join found on found.channel = c.channel
     where (c.full_since is not null) <> found.is_full for no key update of c skip locked
)
update refundd.channels c
   set full_since = case when changed.is_full then now() end
  from changed where c.channel = changed.channel
returning c.channel, c.full_since is not null as is_full
