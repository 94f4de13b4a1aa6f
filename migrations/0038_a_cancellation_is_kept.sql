-- A cancellation left no line in the journal and named nobody: the row alone said `cancelled by its producer`. Nodes may not
-- write a decision into the journal, so one function cancels and writes the line, or does neither. Commands cancel many
-- refunds at once by the same function.
-- Nodes of the last version go on as before: they cancel by an update without a line.
create function refundd.cancel(
    refunds bigint[], seen integer, why text, who text, of_channels text[], never_sent boolean) returns setof refundd.refunds
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(btrim(who), '') = '' then
        raise exception 'a cancellation names no person'
            using errcode = 'invalid_parameter_value', hint = 'The journal keeps who cancelled a refund.';
    end if;
    return query
    with moved as (
        -- A refund in `ready` is safe to cancel: the bank provably executed none of its attempts.
        update refundd.refunds r
           set state = 'cancelled', version = r.version + 1, settled_at = now(),
               reason = 'cancelled by ' || who || coalesce(': ' || why, '')
         where r.id = any(refunds) and r.state = 'ready' and (seen is null or r.version = seen)
           and (of_channels is null or r.channel = any(of_channels))
           and (not never_sent or r.first_sent_at is null)
        returning r.*
    ), kept as (
        insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code, message)
        select m.id, m.channel, 'manual', coalesce(seen, 0), m.lease_epoch, who, 'decided', 'cancelled', 'cancelled', left(why, 500)
          from moved m
    )
    select * from moved;
end $$;

comment on function refundd.cancel is 'Cancels those of these refunds that are ready, and writes that to the journal. `seen`: only this version; null for any. `of_channels`: only refunds of these channels; null for all. `never_sent`: only refunds of which no byte ever left.';

revoke execute on function refundd.cancel from public;

-- A role of nodes may cancel from now on, also before config/node-role.sql is run again: the last version needed no right.
do $$
declare
    kept record;
begin
    for kept in
        select distinct a.grantee::regrole as role
          from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
         where n.oid = 'refundd.decide'::regproc and a.grantee not in (0, n.proowner)
    loop
        execute format('grant execute on function refundd.cancel to %s', kept.role);
    end loop;
end $$;
