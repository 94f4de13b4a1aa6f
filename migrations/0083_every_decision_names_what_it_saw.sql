-- A decision of `succeeded` needed no version. It is the one decision that nobody can undo, and a rejection that came late, or a send
-- that was open again, may have contradicted what the person saw. Now every decision names the version that the person saw.
-- Nodes of the last version that still take `ids` move nothing by them: they answer `refused`. Proposals always kept a version.

-- As before (migration 0073), but no decision goes without a version: a comparison with null allows nothing.
create or replace function refundd.decision_is_allowed(r refundd.refunds, next text, seen integer, not_executed boolean) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select r.version = seen
       and r.state in ('review', 'unknown', 'accepted', 'failed', 'cancelled')
       and refundd.move_is_legal(r.state, next) and not (r.state = 'unknown' and next = 'ready')
       and (next <> 'review' or r.state in ('failed', 'cancelled'))
       and (next <> 'ready' or not_executed or not refundd.may_have_been_executed(r.state, r.uncertain_at, r.first_sent_at, r.reason))
       and (next <> 'ready' or not exists (select from refundd.attempts a
                                            where a.refund_id = r.id and a.kind = 'manual'
                                              and (a.code = 'reopened_cancelled' or a.moved_to = 'cancelled')))
$$;
