-- Every pair of an old and a new row that the conditions of two triggers tell apart, tried by a node. Each try is undone. A long
-- transaction would keep the other tests of this server waiting, so that a procedure commits again and again.
create table public.tried (id bigint generated always as identity, outcome text);
create procedure public.tries(node text)
language plpgsql as $$
declare
    states constant text[] := array['ready', 'sending', 'accepted', 'unknown', 'review', 'succeeded', 'failed', 'cancelled'];
    times constant timestamptz[] := array[null, timestamptz '2026-01-01', timestamptz '2026-01-02'];
    reasons constant text[] := array[null, 'a reason', 'decided by ann'];
    try record;
    result text;
begin
    for try in
        select o.state as old_state, n.state as new_state, os.sent as old_sent, ns.sent as new_sent, ou.since as old_since, nu.since as new_since,
               r.reason, inquiry.at as inquire_at, version.step
          from unnest(states) o (state), unnest(states) n (state), unnest(times[1:2]) os (sent), unnest(times) ns (sent),
               unnest(times[1:2]) ou (since), unnest(times[1:2]) nu (since), unnest(reasons) r (reason), unnest(times[1:2]) inquiry (at),
               unnest(array[-1, 0, 1, 2]) version (step)
         where (o.state <> 'ready' or ou.since is null)
           -- The fewer columns: each matters to one of the two triggers.
           and (inquiry.at is null or (version.step = 1 and r.reason is null))
           and (version.step = 1 or r.reason is null)
    loop
        begin
            perform set_config('session_replication_role', 'replica', true);
            update refundd.refunds
               set state = try.old_state, first_sent_at = try.old_sent, uncertain_at = try.old_since, version = 5, reason = null, inquire_at = null,
                   lease_node = case when try.old_state = 'sending' then 'node' end, lease_until = case when try.old_state = 'sending' then now() end,
                   settled_at = case when try.old_state in ('succeeded', 'failed', 'cancelled') then now() end
             where id = 1;
            perform set_config('session_replication_role', 'origin', true);
            perform set_config('role', node, true);
            update refundd.refunds
               set state = try.new_state, first_sent_at = try.new_sent, uncertain_at = try.new_since, version = 5 + try.step, reason = try.reason,
                   inquire_at = try.inquire_at,
                   lease_node = case when try.new_state = 'sending' then 'node' end, lease_until = case when try.new_state = 'sending' then now() end,
                   settled_at = case when try.new_state in ('succeeded', 'failed', 'cancelled') then now() end
             where id = 1;
            perform set_config('role', 'none', true);
            raise exception using errcode = 'XX001', message = (
                select format('state %s, version %s, sent %s, uncertain %s, inquire %s, reason %s, %s lines', r.state, r.version, r.first_sent_at,
                              r.uncertain_at is not null, r.inquire_at, r.reason, (select count(*) from refundd.attempts))
                  from refundd.refunds r where r.id = 1);
        exception when others then
            result := format('%s: %s %s', try, sqlstate, sqlerrm);
        end;
        insert into public.tried (outcome) values (result);
        commit;
    end loop;
end $$;
