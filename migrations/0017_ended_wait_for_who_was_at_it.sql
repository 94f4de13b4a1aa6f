-- A refund's settled_at is the time at which its transaction began. Transactions of people may last longer than the two
-- minutes after which refundd.ended took all to be told (0014), and what they ended was never counted. So counting a
-- span now has two steps: note who is in a transaction, and count once all of those are through. Whoever begins later
-- dates what it ends later.
--
-- Who has not written anything yet has no transaction id, and other roles' times are not shown to everybody; but a
-- virtual id has everybody who is in a transaction, and pg_locks shows it to all. A transaction that was prepared has
-- lost it, and has only the id: so those that got theirs before ours have to be over as well, of whatever database.
alter table refundd.ended_until
    add column next_until   timestamptz,
    add column next_after   text[],
    add column next_horizon xid8,
    add constraint ended_until_waits_for_somebody
        check ((next_until is null) = (next_after is null) and (next_until is null) = (next_horizon is null));

comment on column refundd.ended_until.next_until is 'Up to when is counted next; null if that is not chosen yet.';
comment on column refundd.ended_until.next_after is 'The virtual ids of the transactions that have to be over before.';
comment on column refundd.ended_until.next_horizon is 'Transactions with an id below this have to be over as well.';

-- The transactions under way in this database. Who is in one all the time while this looks is among them; autovacuum,
-- which belongs to nobody and ends no refund, is not.
create function refundd.transactions_under_way() returns text[]
    language sql volatile
return (select coalesce(array_agg(l.virtualtransaction), '{}')
          from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a on a.pid = l.pid
         where l.locktype = 'virtualxid' and l.virtualxid = l.virtualtransaction and l.pid <> pg_catalog.pg_backend_pid()
           and a.datname = pg_catalog.current_database() and a.usesysid is not null);

comment on function refundd.transactions_under_way is 'Virtual ids of all transactions of other sessions in this database.';

-- As before, two minutes behind: a transaction is dated a moment before it can be seen. The row is held first, and
-- the count sees what was committed before that. After a long wait it catches up by ten minutes at a time, so that no
-- call reads more than it can within a statement's time.
create or replace function refundd.count_ended() returns void language plpgsql set enable_seqscan = off as $$
declare
    til refundd.ended_until%rowtype;
begin
    select * into til from refundd.ended_until for update;
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
