-- heads: the last seal of each channel whose chain grew after a line of the journal.
-- :after_id   the channels whose last seal reaches beyond this id
-- Goes from channel to channel by the key, so the cost grows with the channels and not with the seals.
with recursive heads as (
    (select s.channel, s.number, s.to_id, s.total, s.hash from refundd.seals s
      order by s.channel desc, s.number desc limit 1)
    union all
    select next.* from heads h
     cross join lateral (
           select s.channel, s.number, s.to_id, s.total, s.hash from refundd.seals s
            where s.channel < h.channel order by s.channel desc, s.number desc limit 1) next
)
select channel, number, to_id, total, encode(hash, 'hex') as hash from heads where to_id > :after_id order by channel
