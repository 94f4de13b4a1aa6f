-- settle_inquiry: writes the outcome of one inquiry, and moves its refund if the refund is unchanged since the
-- inquiry was leased. An answer that comes too late goes to the journal and moves nothing. If the journal has the
-- inquiry already, from a try whose commit the node did not see, the journal gets no second line. The number alone does not
-- name the inquiry: after a failover that lost a claim, another inquiry has the same number. The time since which the refund is
-- uncertain names the send that it was about. Nor does the id alone name the refund: after a failover that lost a refund, another
-- refund has its id. The ref is unique for ever. An answer whose refund is lost becomes an event.
-- :state, :next      the states at the lease and from now on
-- :number            of the inquiry
-- :uncertain_at_us   since when the refund was uncertain at the lease, null if it was not
-- :wait_us           until the refund is due, null to leave its due time
-- :inquire_us        until the next inquiry, null for none
-- :started_ago_us    how long ago the first byte left, null if none did
-- :request_id, :amount_minor, :currency   read only if the refund is lost
with locked as (
    select r.id, r.bank_ref from refundd.refunds r where r.id = :id and r.refund_ref = :refund_ref for no key update
), said as materialized (
    -- A bank that said earlier that it executed the refund, or took it, contradicts itself, and a person decides.
    select case :outcome when 'not_executed' then refundd.was_said_paid(l.id, true) when 'rejected' then refundd.was_said_paid(l.id, false) else false end as otherwise,
           -- A late answer may have come since this inquiry was leased, with another reference.
           case when :outcome in ('succeeded', 'accepted') and l.bank_ref <> :bank_ref then l.bank_ref end as other_ref
      from locked l
), decided as materialized (
    select case when s.otherwise or s.other_ref is not null then 'review' else :next end as next,
           case when s.otherwise then 'said_paid: the bank said before that it has this refund, and says now: ' || :message
                when s.other_ref is not null then 'bank_ref_differs: the bank said ' || s.other_ref || ' before, and says now: ' || :bank_ref else :reason end as reason
      from said s
), moved as (
    update refundd.refunds r
       set state = d.next,
           due_at = coalesce(now() + :wait_us::bigint * interval '1 microsecond', r.due_at),
           inquire_at = now() + :inquire_us::bigint * interval '1 microsecond',
           reason = case when d.next = :state then r.reason else d.reason end,
           -- The bank itself says that it rejected the refund, so nothing is uncertain any more.
           uncertain_at = case when d.next = 'failed' then null else r.uncertain_at end,
           bank_ref = coalesce(r.bank_ref, :bank_ref),
           settled_at = case when d.next in ('succeeded', 'failed', 'cancelled') then now() end
      from decided d
     where r.id = :id and r.state = :state and r.lease_epoch = :epoch and r.inquiries = :number
       -- After a failover that lost the send, too, the next send and its first inquiry have all these values again.
       and r.channel = :channel and (extract(epoch from r.uncertain_at) * 1000000)::bigint is not distinct from :uncertain_at_us::bigint
    returning r.id, r.state
), kept as (
    insert into refundd.attempts
           (refund_id, channel, kind, number, lease_epoch, node, permit, started_at, outcome, moved_to, status, code, message)
    select :id, :channel, 'inquiry', :number, :epoch, :node, :permit, now() - :started_ago_us::bigint * interval '1 microsecond',
           :outcome, (select state from moved), :status, :code,
           -- The row does not have this reference. A trigger reads the end of the line.
           case when :bank_ref is not null and not exists (select from moved where state <> 'review')
                then left(:message, 483 - length(:bank_ref)) || '; bank reference ' || :bank_ref else :message end
     where exists (select from locked)
       -- What changes its state now did not do so in an earlier try.
       and (exists (select from moved where state <> :state) or not refundd.outcome_is_kept(:id, :epoch, :node, :permit, :outcome, :number))
)
select (select state from moved) as state,
       case when exists (select from locked) then true
            else refundd.note_lost_refund(
                     :id, :refund_ref, :request_id::uuid, :amount_minor::bigint, :currency::text, :channel, :node, 'inquiry', :number,
                     now() - :started_ago_us::bigint * interval '1 microsecond', :outcome, :status, :code, :message, :bank_ref) is null end as is_there
