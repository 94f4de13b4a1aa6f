-- decide: moves a refund by a person's decision, and keeps the evidence in the journal.
-- :next           the state that the person chose
-- :seen           the version that the person saw, or null
-- :not_executed   the person confirmed that the bank executed nothing
-- The list of states leaves out sending (a node has leased the refund) and ready (a person cancels it instead).
-- A trigger keeps a refund that may have been executed from becoming ready while uncertain_at is set.
with moved as (
         update refundd.refunds r
            set state = :next, version = r.version + 1, reason = 'decided by ' || :who || ': ' || :why,
                due_at = case when :next = 'ready' then now() else r.due_at end,
                attempts = case when :next = 'ready' then 0 else r.attempts end,
                uncertain_at = case when :next = 'ready' and :not_executed then null else r.uncertain_at end,
                settled_at = case when :next in ('succeeded', 'failed', 'cancelled') then now() end
          where r.id = :id and (r.version = :seen or (:seen::integer is null and :next = 'succeeded'))
            and r.state in ('review', 'unknown', 'accepted', 'failed')
            and refundd.move_is_legal(r.state, :next) and not (r.state = 'unknown' and :next = 'ready')
            and (:next <> 'ready' or :not_executed or not refundd.may_have_been_executed(r.state, r.uncertain_at, r.first_sent_at, r.reason))
         returning r.*
     ), kept as (
         insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
         select id, channel, 'manual', coalesce(:seen, 0), lease_epoch, :who, 'decided', :next,
                case when :not_executed then 'confirmed_not_executed' else 'decided' end, left(:why, 500) from moved
     )
     select r.id, r.refund_ref, r.channel, r.payment_ref, r.amount_minor, r.currency, r.payload::text as payload,
         (extract(epoch from r.due_at) * 1000000)::bigint as due_us,
         (extract(epoch from r.deadline_at) * 1000000)::bigint as deadline_us,
         r.request_id, r.state, r.version, r.attempts, r.reason,
         (extract(epoch from case when r.state not in ('succeeded', 'cancelled')
              and refundd.may_have_been_executed(r.state, r.uncertain_at, r.first_sent_at, r.reason)
              then coalesce(r.uncertain_at, r.first_sent_at) end) * 1000000)::bigint as uncertain_us,
         (extract(epoch from r.created_at) * 1000000)::bigint as created_us,
         (extract(epoch from r.settled_at) * 1000000)::bigint as settled_us from moved r
