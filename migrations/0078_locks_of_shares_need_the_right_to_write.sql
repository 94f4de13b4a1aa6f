-- Two nodes reserve shares of one limit one after the other. Until now an advisory lock did that. Every login of the database may take
-- advisory locks, also one without any right on refundd's tables, such as a producer. It could stop every channel under a limit with
-- placement = "local_share". From now on the lock is a row that only roles of nodes can lock.
create table if not exists refundd.share_locks (
    limit_name text not null,
    constraint share_locks_pkey primary key (limit_name)
);

-- The limits that nodes have by now. In the first heartbeats afterwards each of them would be new on all nodes at the same time, and a
-- node that skips locked limits would wait for another node that makes the row.
insert into refundd.share_locks (limit_name) select distinct r.limit_name from refundd.share_rules r on conflict do nothing;

comment on table refundd.share_locks is 'One row for each limit with shares. The transaction that locks it reserves a share of the limit; others wait.';
comment on column refundd.share_locks.limit_name is 'The name in the configuration file, [limit.NAME].';

create or replace function refundd.lock_shares(of_limit text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    loop
        perform from refundd.share_locks l where l.limit_name = of_limit for no key update;
        exit when found;
        -- The first reservation of the limit. If another transaction makes the row at the same time, the insert waits for its end.
        insert into refundd.share_locks (limit_name) values (of_limit) on conflict on constraint share_locks_pkey do nothing;
    end loop;
end $$;

comment on function refundd.lock_shares is 'Waits until no other transaction reserves a share of the limit, and keeps others waiting until this one ends.';

-- As before (migration 0068), but the lock is one that needs the right to write.
create or replace function refundd.reserve_share(of_limit text, for_node text, of_shares integer, by_rule jsonb, counts_for interval,
                                      out given integer, out other_node text, out other_shares integer, out other_permits bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    moment timestamptz;
begin
    -- One node at a time, so that two nodes that differ never both find the limit free.
    perform refundd.lock_shares(of_limit);
    moment := clock_timestamp();

    -- Nobody holds a share for longer than five seconds. Later times are of a clock that was ahead.
    update refundd.share_rules r
       set seen_at = least(r.seen_at, moment),
           held_until = case when r.held_until > moment + interval '5 seconds' then moment + interval '5 seconds' else r.held_until end
     where r.limit_name = of_limit and (r.seen_at > moment or r.held_until > moment + interval '5 seconds');
    update refundd.limit_shares l set seen_at = moment where l.limit_name = of_limit and l.seen_at > moment;

    -- The file of this node changed: it gives its old share back first.
    update refundd.share_rules r
       set seen_at = '-infinity', held_until = case when r.held_until > moment then moment else r.held_until end
     where r.limit_name = of_limit and r.node = for_node and r.seen_at > '-infinity'
       and (r.shares, r.rule) is distinct from (of_shares, by_rule);
    if found then
        delete from refundd.limit_shares l where l.limit_name = of_limit and l.node = for_node;
    end if;
    insert into refundd.share_rules as r (limit_name, node, shares, rule, rest, seen_at)
    values (of_limit, for_node, of_shares, by_rule, counts_for, moment)
        on conflict on constraint share_rules_pkey do update
       set seen_at = excluded.seen_at, rest = greatest(r.rest, excluded.rest);

    -- A step of the clock must not make a share look older than it is.
    delete from refundd.share_rules r
     where r.limit_name = of_limit and r.seen_at < moment - interval '10 seconds'
       and (r.held_until is null
            or r.held_until + r.rest + refundd.stepped_forward(r.held_until - interval '5 seconds') < moment);

    select r.node, r.shares, (r.rule ->> 'permits')::bigint into other_node, other_shares, other_permits
      from refundd.share_rules r
     where r.limit_name = of_limit and (r.shares, r.rule) is distinct from (of_shares, by_rule)
       and (r.held_until > moment
            -- A share of the same number has the same name, and the ledger goes on counting its permits. Others count apart.
            or r.shares <> of_shares
               and r.held_until + r.rest + refundd.stepped_forward(r.held_until - interval '5 seconds') > moment
            or r.shares = of_shares and r.seen_at > moment - interval '10 seconds'
               and refundd.rule_is_stricter(r.rule::text, by_rule::text))
     order by r.seen_at desc, r.node limit 1;
    if not found then
        -- A node of an older version does not say by how many shares it counts.
        select l.node into other_node
          from refundd.limit_shares l
         where l.limit_name = of_limit and l.node <> for_node and l.seen_at > moment - interval '10 seconds'
           and not exists (select from refundd.share_rules r where r.limit_name = of_limit and r.node = l.node)
         order by l.share limit 1;
    end if;
    if other_node is not null then
        delete from refundd.limit_shares l where l.limit_name = of_limit and l.node = for_node;
        update refundd.share_rules r set held_until = moment
         where r.limit_name = of_limit and r.node = for_node and r.held_until > moment;
        return;
    end if;

    select l.share into given
      from refundd.limit_shares l
     where l.limit_name = of_limit and l.node = for_node and l.share <= of_shares
     order by l.share limit 1;
    if given is null then
        select s.share into given
          from generate_series(1, of_shares) s (share)
         where not exists (select from refundd.limit_shares l
                            where l.limit_name = of_limit and l.share = s.share and l.seen_at >= moment - interval '10 seconds')
         order by s.share limit 1;
    end if;
    if given is null then
        return;
    end if;
    insert into refundd.limit_shares as l (limit_name, share, node, seen_at) values (of_limit, given, for_node, moment)
        on conflict on constraint limit_shares_pkey do update set node = excluded.node, seen_at = excluded.seen_at
     where l.node = for_node or l.seen_at < moment - interval '10 seconds';
    if not found then
        -- A node of an older version was faster.
        given := null;
        return;
    end if;
    -- As long as the node uses a share that it could not reserve again (OwnShares::GOOD_FOR).
    update refundd.share_rules r set held_until = moment + interval '5 seconds'
     where r.limit_name = of_limit and r.node = for_node and r.shares = of_shares and r.rule = by_rule;
end $$;

-- A call that began before this migration runs the function of migration 0068 to its end, with the advisory lock. It inserts its rule
-- before it looks at those of others. So the insert takes the lock, too. To make the trigger, this migration waits for calls that have
-- written to the table already, and all later ones meet the trigger.
create or replace function refundd.share_rules_take_the_lock() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform refundd.lock_shares(new.limit_name);
    return new;
end $$;

create or replace trigger share_rules_take_the_lock before insert on refundd.share_rules
    for each row execute function refundd.share_rules_take_the_lock();

revoke execute on function refundd.lock_shares, refundd.share_rules_take_the_lock from public;

-- Roles of nodes may lock shares, those of older versions, too: they call the function above.
do $$
declare
    role regrole;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner) loop
        execute format('grant select, insert, update on refundd.share_locks to %s', role);
        execute format('grant execute on function refundd.lock_shares to %s', role);
    end loop;
end $$;
