-- While Postgres's clock was hours ahead, refundd.ended was counted up to a time in the future. Once the clock was right again, what ended
-- before that time was never counted: the totals stood still for hours, and those refunds were missing for ever. Now the first
-- call after such a step forgets the counts, and the next one counts all refunds that ended. Until then each look reads them all. In a
-- large database that call may need longer than a node gives it; the runbook says what the owner does then.

-- As before (migration 0017), and anew if the time up to which all is counted has not come yet.
create or replace function refundd.count_ended() returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    til refundd.ended_until%rowtype;
begin
    select * into til from refundd.ended_until for update;
    if til.counted_until > now() then
        update refundd.ended set n = 0;
        update refundd.ended_until
           set counted_until = '-infinity', next_until = now() - interval '2 minutes',
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
