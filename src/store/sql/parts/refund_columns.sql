-- refund_columns: the columns of a refund `r` for read_refund. `uncertain_at` is the time of the last send, and
-- an earlier one may have been executed, too. Null counts for nothing in `least`.
r.id, r.refund_ref, r.channel, r.payment_ref, r.amount_minor, r.currency, r.payload::text as payload,
(extract(epoch from r.due_at) * 1000000)::bigint as due_us,
(extract(epoch from r.deadline_at) * 1000000)::bigint as deadline_us,
r.request_id, r.state, r.version, r.attempts, r.reason, r.bank_ref,
(extract(epoch from case when r.state not in ('succeeded', 'cancelled')
     and refundd.may_have_been_executed(r.state, r.uncertain_at, r.first_sent_at, r.reason)
     then least(r.first_sent_at, r.uncertain_at) end) * 1000000)::bigint as uncertain_us,
(extract(epoch from r.created_at) * 1000000)::bigint as created_us,
(extract(epoch from r.settled_at) * 1000000)::bigint as settled_us
