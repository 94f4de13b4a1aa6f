-- settle: writes outcomes under their leases and keeps the evidence, in one commit.
-- Only the claim that still has the lease of this epoch moves the refund: after a failover that lost a claim, another claim has the same epoch. An outcome that comes too late goes to the
-- journal, and a trigger looks whether it says that the bank paid (late_evidence_makes_a_version).
-- A refund that became uncertain while it was sent goes to a person instead of `ready` or `failed`: the bank's late answer to an
-- earlier send says that it has the refund, or a failover lost the claim of an earlier send.
-- A refund that the bank's late answer executed under another reference goes to a person, too: it may be paid twice.
-- The id alone does not name a refund: after a failover that lost a refund, another refund has its id. The ref is unique for ever.
-- An outcome whose refund is lost becomes an event. The statement answers its id with its ref, and each moved refund without.
-- :again                           an earlier try may have committed unseen: lines that the journal has are not
--                                  written again
-- :id and the others of `unnest`   one row for each outcome
-- :request_id, :amount_minor, :currency   of each outcome, too, but read only if its refund is lost
with outcomes as (
    select * from unnest(
        :id::bigint[], :refund_ref::text[], :epoch::bigint[], :holder::text[], :channel::text[], :next::text[], :wait_us::bigint[], :counted::boolean[], :reason::text[],
        :number::integer[], :started_ago_us::bigint[], :outcome::text[], :status::smallint[], :code::text[], :message::text[],
        :permit::text[], :is_first::boolean[], :inquire_us::bigint[], :bank_ref::text[]) with ordinality
    as t (id, refund_ref, epoch, holder, channel, next, wait_us, counted, reason,
          number, started_ago_us, outcome, status, code, message,
          permit, is_first, inquire_us, bank_ref, nth)
), locked as (
    -- That try may still be under way, and the journal tells only when it is over. A row that moves now is not among these: it was
    -- changed by this statement, and its line is written in any case.
    select r.id from refundd.refunds r where :again and r.id = any(:id) for no key update
), moved as (
    update refundd.refunds r
       set state = case when t.next in ('ready', 'failed') and r.uncertain_at is not null then 'review'
                        when t.next in ('succeeded', 'accepted') and r.bank_ref <> t.bank_ref then 'review' else t.next end, version = r.version + 1,
           attempts = r.attempts - case when t.counted then 0 else 1 end,
           -- A refund that goes back without a wait keeps its place in the backlog.
           due_at = case when t.wait_us = 0 then r.due_at
                         when t.next in ('ready', 'accepted', 'unknown') then now() + t.wait_us * interval '1 microsecond' else r.due_at end,
           reason = case when t.next in ('ready', 'failed') and r.uncertain_at is not null
                         then case when refundd.was_said_paid(r.id, true) then 'said_paid: the bank said of an earlier send that it has this refund, and of this one: '
                                   else 'claim_lost: a failover of Postgres lost the claim of an earlier send, which may have been executed. What came of this one: ' end
                              || t.outcome
                         when t.next in ('succeeded', 'accepted') and r.bank_ref <> t.bank_ref
                         then 'bank_ref_differs: the bank said of an earlier send ' || r.bank_ref || ', and of this one ' || t.bank_ref
                         -- A resend that executed nothing says nothing about the send that made the refund uncertain, and its line has its own outcome.
                         when t.outcome = 'not_executed' and r.uncertain_at is not null then coalesce(r.reason, t.reason)
                         -- While a refund is sent, a late answer may say that a failover lost the claim of an earlier send. Another reason is that of
                         -- an earlier send: this outcome replaces it, so that the text does not grow with each resend.
                         else left(t.reason || case when r.reason ~ '^(claim_lost|said_paid): ' then '; before: ' || r.reason else '' end, 1000) end,
           -- The bank cannot remember a request id of which no byte left.
           first_sent_at = case when not t.is_first or t.started_ago_us is not null or r.uncertain_at is not null then r.first_sent_at end,
           inquire_at = now() + t.inquire_us * interval '1 microsecond',
           bank_ref = coalesce(r.bank_ref, t.bank_ref),
           lease_node = null, lease_until = null,
           settled_at = case when t.next = 'succeeded' and r.bank_ref <> t.bank_ref then null
                             when t.next in ('succeeded', 'cancelled') or (t.next = 'failed' and r.uncertain_at is null) then now() end
      from outcomes t
     where r.id = t.id and r.id = any(:id) -- found by id, as in claim.sql
       -- No comparison with a constant: a planner that expects few `sending` rows would compare each with each outcome.
       and r.lease_epoch = t.epoch and case when r.state = 'sending' then r.lease_node end = t.holder
       -- A `case`, so that no plan finds or hashes the rows by their refs.
       and case when r.refund_ref = t.refund_ref then true end
    returning r.id, r.state, r.lease_epoch, t.holder
), lost as (
    -- While all outcomes move, nobody looks.
    select t.* from outcomes t
     where (select count(*) from moved) < cardinality(:id)
       and case when (t.id, t.epoch, t.holder) not in (select id, lease_epoch, holder from moved)
                then (select r.refund_ref from refundd.refunds r where r.id = t.id) is distinct from t.refund_ref end
), kept as (
    insert into refundd.attempts
           (refund_id, channel, kind, number, lease_epoch, node, permit, started_at, outcome, moved_to, status, code, message)
    select t.id, t.channel, 'send', t.number, t.epoch, :node, t.permit,
           -- `now()`, as in `finished_at`: by `clock_timestamp()` a short attempt started after it finished.
           now() - t.started_ago_us * interval '1 microsecond',
           t.outcome,
           -- A subquery, and not a join: planned for ten rows, a join compared each outcome with each moved row.
           case when (t.id, t.epoch, t.holder) not in (select id, lease_epoch, holder from moved) then null
                -- A trigger may have shown it to a person in place of `unknown`.
                when t.id in (select id from moved where state = 'review') then 'review' else t.next end, t.status, t.code,
           -- The row does not have this reference. The trigger reads the end of the line.
           case when t.bank_ref is not null and (t.id, t.epoch, t.holder) not in (select id, lease_epoch, holder from moved where state <> 'review')
                then left(t.message, 483 - length(t.bank_ref)) || '; bank reference ' || t.bank_ref else t.message end
      from outcomes t
     where (t.id, t.refund_ref) not in (select id, refund_ref from lost)
       and (not :again or t.id in (select id from moved)
            or case when t.id in (select id from locked) then not refundd.outcome_is_kept(t.id, t.epoch, :node, t.permit, t.outcome) end)
)
select id, null as lost_ref from moved
 union all
select l.id, refundd.note_lost_refund(
           l.id, l.refund_ref, (:request_id::uuid[])[l.nth::integer], (:amount_minor::bigint[])[l.nth::integer], (:currency::text[])[l.nth::integer],
           l.channel, l.holder, 'send', l.number, now() - l.started_ago_us * interval '1 microsecond',
           l.outcome, l.status, l.code, l.message, l.bank_ref)
  from lost l
