-- unclaim: takes a claim back. The node did not see whether the claim committed, so it sent none of the refunds. The lease names
-- the claim: this statement ends no other lease, not even a later one of the same node.
-- Each claim that is taken back leaves a line, so that the late line of a claim with the same epoch, which a failover lost, is told
-- apart from it (late_evidence_makes_a_version). The feed reads changes from the journal, too. The trigger that writes such a line for
-- nodes finds this one and writes none (moves_are_in_the_journal).
-- :ids      the refunds of the claim
-- :holder   the lease of the claim
with back as (
    update refundd.refunds r
       set state = case when r.uncertain_at is null then 'ready' else 'unknown' end,
           attempts = r.attempts - 1, lease_node = null, lease_until = null,
           -- The claim wrote it, unless an earlier send did. Each request leaves a line. The lines of a refund that ended may be dropped
           -- with their month, but what makes such a refund `ready` again leaves a line, too. What moves was never sent.
           first_sent_at = case when r.uncertain_at is not null or exists (
               select from refundd.attempts a
                where a.refund_id = r.id and (a.kind <> 'send' or a.started_at is not null or a.outcome <> 'not_executed')
                  and coalesce(a.code, '') not in ('moved_out', 'moved_in')) then r.first_sent_at end
     where r.id = any(:ids::bigint[]) and r.state = 'sending' and r.lease_node = :holder
    returning r.id, r.channel, r.attempts, r.lease_epoch, r.state
), kept as (
    insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
    select id, channel, 'send', attempts + 1, lease_epoch, :holder, 'not_executed', state, 'taken_back',
           'the claim was taken back, and no request was made'
      from back
)
select id from back
