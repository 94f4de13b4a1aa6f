-- changes: the changes of state behind a place in the journal, in the order of the journal.
-- :after, :until   the place, and the line up to which no transaction can commit a line any more
-- :channels        only refunds of these channels; null for all
-- :channel         only refunds of this channel; null for all
-- :most_lines      how many lines are read, so that a caller with one quiet channel among busy ones reads no month at once
-- :most            how many changes are answered
with lines as (
    select a.id, a.refund_id, a.channel, a.kind, a.moved_to, a.code, a.message, a.finished_at
      from refundd.attempts a
     where a.id > :after and a.id <= :until
     order by a.id limit :most_lines
), scanned as (
    select count(*) as lines, max(id) as last_id from lines
), changes as (
    select l.* from lines l
     where l.moved_to is not null
       -- A send that was not executed leads back to `ready`. For a program the refund was `ready` all the time.
       and not (l.kind = 'send' and l.moved_to = 'ready')
       and (:channels::text[] is null or l.channel = any(:channels)) and (:channel::text is null or l.channel = :channel)
       -- An inquiry and a resend may leave the refund in the state that it had.
       and (l.moved_to not in ('accepted', 'unknown')
            or l.moved_to is distinct from (
               select p.moved_to from refundd.attempts p
                where p.refund_id = l.refund_id and p.id < l.id and p.moved_to is not null and not (p.kind = 'send' and p.moved_to = 'ready')
                order by p.id desc limit 1))
     order by l.id limit :most
)
select s.lines, s.last_id, c.id, c.refund_id, r.refund_ref, c.channel, c.moved_to, c.code, c.message,
       -- A refund that moved away has its reference from the bank of a channel that the caller may not have.
       case when :channels::text[] is null or r.channel = any(:channels) then r.bank_ref end as bank_ref,
       (extract(epoch from c.finished_at) * 1000000)::bigint as at_us
  from scanned s
  left join changes c on true
  left join refundd.refunds r on r.id = c.refund_id
 order by c.id
