-- A failover that loses the claim of an inquiry gives its number to the next inquiry of the refund. The answer to the next one moved the
-- refund and left no line in the journal, or was refused for want of one. An answer that moved nothing was written nowhere, also "executed".

-- As before (migration 0071), and with the number of an inquiry it looks for the outcome of that inquiry. The calls of nodes of the last
-- version go on as before. They call refundd.inquiry_is_kept for inquiries.
drop function refundd.outcome_is_kept(bigint, bigint, text, text, text);

create function refundd.outcome_is_kept(
    refund bigint, epoch bigint, node text, permit text, outcome text, inquiry integer default null
) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return exists (select from refundd.attempts a
                    where a.refund_id = refund and a.lease_epoch = epoch
                      and case when inquiry is null then a.kind = 'send' and a.code <> 'lease_lapsed' else a.kind = 'inquiry' and a.number = inquiry end
                      and a.node = outcome_is_kept.node and a.permit is not distinct from outcome_is_kept.permit
                      and a.outcome = outcome_is_kept.outcome);
end $$;

comment on function refundd.outcome_is_kept is 'Whether the journal has this outcome of the send, or of the inquiry with this number, that this process made under this lease.';

revoke execute on function refundd.outcome_is_kept from public;

-- A role of nodes may call it from now on, also before config/node-role.sql is run again.
do $$
declare
    kept record;
begin
    for kept in
        select distinct a.grantee::regrole as role
          from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
         where n.oid = 'refundd.send_is_kept'::regproc and a.grantee not in (0, n.proowner)
    loop
        execute format('grant execute on function refundd.outcome_is_kept to %s', kept.role);
    end loop;
end $$;
