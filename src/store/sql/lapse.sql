-- lapse: moves refunds whose leases lapsed from sending to unknown, never to ready: they may have been sent.
-- The journal gets the attempt that the node did not write. The new reason keeps one which says that a failover lost the claim of an earlier
-- send, and replaces that of an earlier send, as in settle.sql.
-- :most           refunds of one call
-- :witnessed_us   Postgres's time as the node's own clock carried it on, null without a clock witness: a clock that was
--                 set forward ends no lease early
-- :only           null, or the only refunds to move
-- :without        refunds to leave alone
-- The 10 seconds until the first inquiry are AGES[0] in refund/inquiry.rs: keep the two equal.
    with late as (
        select id, left(lease_node, 500) as lease_node from refundd.refunds -- the journal bounds the name of a node
         where state = 'sending' and lease_until < least(now(), timestamptz 'epoch' + :witnessed_us * interval '1 microsecond')
           and (:only::bigint[] is null or id = any(:only))
           and id not in (select w.without from unnest(:without::bigint[]) as w (without))
         order by lease_until limit :most for update skip locked
    ), moved as (
        update refundd.refunds r
           set state = 'unknown', reason = 'lease_lapsed: ' || late.lease_node || ' did not settle in time' || case when r.reason ~ '^(claim_lost|said_paid): ' then '; before: ' || r.reason else '' end,
               lease_node = null, lease_until = null, due_at = now(),
               inquire_at = case when c.inquires and c.on_unknown = 'inquire' then now() + interval '10 seconds' end
          from late, refundd.channels c where r.id = late.id and c.channel = r.channel
        returning r.id, r.channel, r.attempts, r.lease_epoch, r.state, late.lease_node as node
    ), kept as (
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        -- A trigger shows what the bank has to a person.
        select id, channel, 'send', attempts, lease_epoch, node, 'unknown', state, 'lease_lapsed',
               'the node did not settle before its lease was over; the request may have been made'
          from moved
    )
    select id, channel, node from moved
