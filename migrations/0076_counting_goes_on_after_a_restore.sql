-- refundd.ended_until notes the newest transaction id of the server, and counting waits until all ids below it are over. A dump that is
-- restored on another server, such as one of a new major version, brings the note of the old server along. Where the new server's ids
-- were behind, refundd.count_ended counted nothing until they came that far, which may take months. Until then each look at the counts read
-- all refunds that ended since. Now a note with an id that the server has not given yet is replaced by one of this server.

-- As before (migration 0073), and a note of another server is made anew.
create or replace function refundd.count_ended() returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    til       refundd.ended_until%rowtype;
    last_step bigint;
    back      interval;
begin
    select * into til from refundd.ended_until for update;
    select max(s.step), sum(s.step_by) filter (where s.step_by < interval '0') into last_step, back
      from refundd.clock_steps s where s.step > til.steps_seen;
    if til.counted_until > now() or back <= interval '-1 minute' then
        update refundd.ended set n = 0;
        update refundd.ended_until
           set counted_until = '-infinity', next_until = now() - interval '2 minutes', steps_seen = coalesce(last_step, til.steps_seen),
               next_after = refundd.transactions_under_way(), next_horizon = pg_current_xact_id();
        return;
    end if;
    -- The ids of a server only grow, and the note was committed before this look. So it came from another server. The end of the span stays
    -- where all is counted anew: from -infinity no next end can be worked out.
    if til.next_horizon > pg_snapshot_xmax(pg_current_snapshot()) then
        update refundd.ended_until
           set next_until = greatest(til.counted_until, least(now() - interval '2 minutes', til.next_until)),
               next_after = refundd.transactions_under_way(), next_horizon = pg_current_xact_id();
        return;
    end if;
    if til.next_until is not null then
        if til.next_after && refundd.transactions_under_way()
           or pg_snapshot_xmin(pg_current_snapshot()) < til.next_horizon then
            return;
        end if;
        -- One that was noted may have been prepared since, and then has no virtual id any more.
        if exists (select from pg_catalog.pg_prepared_xacts p where p.database = current_database()) then
            return;
        end if;
        insert into refundd.ended as e (channel, state, n)
        select r.channel, r.state, count(*) from refundd.refunds r
         where r.settled_at >= til.counted_until and r.settled_at < til.next_until
         group by r.channel, r.state
            on conflict (channel, state) do update set n = e.n + excluded.n;
        til.counted_until := til.next_until;
    end if;
    update refundd.ended_until
       set counted_until = til.counted_until,
           next_until = greatest(til.counted_until, least(now() - interval '2 minutes', til.counted_until + interval '10 minutes')),
           next_after = refundd.transactions_under_way(),
           next_horizon = pg_current_xact_id();
end $$;
