-- Nodes whose files share out a limit among another number of nodes, or with another rule, each counted a share by their own file.
-- Two of 2 shares and two of 4 shares sent one and a half times the limit for as long as the files differed. From now on each
-- node writes down by which number of shares and which rule it wants to count. Only nodes that agree have shares.
create table if not exists refundd.share_rules (
    limit_name text        not null,
    node       text        not null,
    shares     integer     not null,
    rule       jsonb       not null,
    rest       interval    not null,
    seen_at    timestamptz not null,
    held_until timestamptz,
    constraint share_rules_pkey primary key (limit_name, node, shares, rule),
    constraint share_rules_count_from_one check (shares >= 1)
);

comment on table refundd.share_rules is 'By which number of shares and which rule each node wants to count a limit (placement = "local_share"), or did so until lately.';
comment on column refundd.share_rules.limit_name is 'The name in the configuration file, [limit.NAME].';
comment on column refundd.share_rules.node is 'The process.';
comment on column refundd.share_rules.shares is 'The limit''s `nodes` in its file.';
comment on column refundd.share_rules.rule is 'The rule of the whole limit in its file.';
comment on column refundd.share_rules.rest is 'How long after held_until a permit of the node''s share may still count.';
comment on column refundd.share_rules.seen_at is 'When the node last wanted a share; -infinity once its file says otherwise, or once it stopped.';
comment on column refundd.share_rules.held_until is 'Until when the node takes permits of its share, if it does not reserve the share again; null if it never had one.';

-- Reserves a share for a node, or keeps the one that it has. `given` is null while the node must wait: for the node `other_node`,
-- or, if that is null, for a free share. A stricter rule goes first, as with limits in Redis; of one rule, the number of shares that
-- is in use. `counts_for` is the rest of the node's own rule.
create or replace function refundd.reserve_share(of_limit text, for_node text, of_shares integer, by_rule jsonb, counts_for interval,
                                      out given integer, out other_node text, out other_shares integer, out other_permits bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    moment timestamptz;
begin
    -- One node at a time, so that two nodes that differ never both find the limit free.
    perform pg_advisory_xact_lock('refundd.limit_shares'::regclass::oid::integer, hashtext(of_limit));
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

comment on function refundd.reserve_share is 'Reserves for a node a share of a limit that nodes count alone, while no node counts the limit by another number of shares or another rule.';

revoke execute on function refundd.reserve_share from public;

-- Roles of nodes may reserve shares.
do $$
declare
    role regrole;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner) loop
        execute format('grant select, insert, update, delete on refundd.share_rules to %s', role);
        execute format('grant execute on function refundd.reserve_share to %s', role);
    end loop;
end $$;
