-- seals: the next seals in the order of the lines, for `refundd prove --journal`.
-- :after_id, :until_id   seals that end after the one id and up to the other
-- :channel               of this channel; null for all
-- :most                  about so many; seals that end at one id come together
-- The columns `before_` are of the seal with the number before. Its row is looked up for each seal: as a plain join, it might be
-- found by reading the whole table for each page.
with page as (
    select max(s.to_id) as to_id
      from (select s.to_id from refundd.seals s
             where s.to_id > :after_id and s.to_id <= :until_id and (:channel::text is null or s.channel = :channel)
             order by s.to_id limit :most) s
)
select s.format, s.channel, s.number, s.after_id, s.to_id, s.month, s.sealed_at, s.total, s.previous, s.lines, s.hash,
       b.after_id as before_after_id, b.to_id as before_to_id,
       (extract(epoch from b.sealed_at) * 1000000)::bigint as before_sealed_us,
       (extract(epoch from s.sealed_at) * 1000000)::bigint as sealed_us,
       case when isfinite(s.month)
            then (extract(epoch from (s.month at time zone 'UTC' + interval '1 month') at time zone 'UTC') * 1000000)::bigint
            else 9223372036854775807 end as month_ends_us
  from page join refundd.seals s on s.to_id > :after_id and s.to_id <= page.to_id
  left join lateral (select p.after_id, p.to_id, p.sealed_at from refundd.seals p
                      where p.channel = s.channel and p.number = s.number - 1 limit 1) b on true
 where :channel::text is null or s.channel = :channel
 order by s.to_id, s.channel, s.number
