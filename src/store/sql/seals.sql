-- seals: the next seals in the order of the lines, for `refundd prove --journal`.
-- :after_id, :until_id   seals that end after the one id and up to the other
-- :channel               of this channel; null for all
-- :most                  about so many; seals that end at one id come together
with page as (
    select max(s.to_id) as to_id
      from (select s.to_id from refundd.seals s
             where s.to_id > :after_id and s.to_id <= :until_id and (:channel::text is null or s.channel = :channel)
             order by s.to_id limit :most) s
)
select s.format, s.channel, s.number, s.after_id, s.to_id, s.month, s.sealed_at, s.total, s.previous, s.lines, s.hash,
       (extract(epoch from s.sealed_at) * 1000000)::bigint as sealed_us,
       case when isfinite(s.month)
            then (extract(epoch from (s.month at time zone 'UTC' + interval '1 month') at time zone 'UTC') * 1000000)::bigint
            else 9223372036854775807 end as month_ends_us
  from page join refundd.seals s on s.to_id > :after_id and s.to_id <= page.to_id
 where :channel::text is null or s.channel = :channel
 order by s.to_id, s.channel, s.number
