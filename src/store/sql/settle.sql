-- settle: writes outcomes back under their leases and keeps the evidence, in one commit.
-- Only the node that still holds the very lease moves a refund; an answer that comes too late is kept
-- in the journal and moves nothing.
-- $17 no byte left before this lease  $18 when the bank is asked, in us  $19 its own reference
-- $16 says that this was tried before and its commit not seen: what the journal has then is not kept twice.
with told as (
    select * from unnest(
        $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::boolean[], $7::text[],
        $8::integer[], $9::bigint[], $10::text[], $11::smallint[], $12::text[], $13::text[], $14::text[],
        $17::boolean[], $18::bigint[], $19::text[])
    as t (id, epoch, channel, next, wait_us, counted, reason, number, started_ago_us, outcome, status, code, message, permit,
          is_first, inquire_us, bank_ref)
), moved as (
    update refundd.refunds r
       set state = t.next, version = r.version + 1,
           attempts = r.attempts - case when t.counted then 0 else 1 end,
           -- What goes back without a wait keeps its place in line.
           due_at = case when t.wait_us = 0 then r.due_at
                         when t.next in ('ready', 'accepted', 'unknown') then now() + t.wait_us * interval '1 microsecond' else r.due_at end,
           reason = t.reason,
           -- The bank cannot remember a key of which no byte left.
           first_sent_at = case when not t.is_first or t.started_ago_us is not null then r.first_sent_at end,
           inquire_at = now() + t.inquire_us * interval '1 microsecond',
           bank_ref = coalesce(r.bank_ref, t.bank_ref),
           lease_node = null, lease_until = null,
           settled_at = case when t.next in ('succeeded', 'failed', 'cancelled') then now() end
      from told t
     where r.id = t.id and r.id = any($1) -- by id, as in claim.sql
       -- One comparison, and not two: a planner that thinks few rows are being sent compares each of them with each told.
       and case when r.state = 'sending' then r.lease_epoch end = t.epoch
    returning r.id
), kept as (
    insert into refundd.attempts
           (refund_id, channel, kind, number, lease_epoch, node, permit, started_at, outcome, moved_to, status, code, message)
    select t.id, t.channel, 'send', t.number, t.epoch, $15, t.permit,
           clock_timestamp() - t.started_ago_us * interval '1 microsecond',
           t.outcome,
           -- Not by a join: planned for ten rows, it compared each told with each moved.
           case when t.id in (select id from moved) then t.next end, t.status, t.code, t.message
      from told t
     where not $16 or not refundd.send_is_kept(t.id, t.epoch)
)
select id from moved
