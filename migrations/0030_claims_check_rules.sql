-- Redis proposes, Postgres disposes. A claim took every permit whose number was new. So somebody who can write to Redis
-- could raise a limit: a forged count, or a forged rule that passed for the stricter rule of another node. From now on
-- a claim, and a grant to another service, checks each permit against the rule of the node's own file.

-- The most permits of a rule in any span of its `per`.
create function refundd.rule_most(rule jsonb) returns bigint
    language sql immutable strict parallel safe
return (rule ->> 'permits')::bigint * case when rule ->> 'algorithm' = 'fixed_window' then 2 else 1 end
       + coalesce((rule ->> 'burst')::bigint, 0);

-- Whether these permits of one limit keep a rule with numbered windows: each number is within the rule, and each window
-- is one of the rule's windows and includes this moment, as far as the clocks agree (`apart`, in us).
create function refundd.windows_keep_rule(rule jsonb, windows bigint[], ordinals integer[], apart bigint) returns boolean
    language sql volatile
return not exists (
    select from unnest(windows, ordinals) as p (window_us, ordinal)
     cross join (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as us) as here
     where p.ordinal > (rule ->> 'permits')::bigint
        or p.window_us > here.us + apart
        -- A day of a time zone may have 25 hours.
        or p.window_us < here.us - apart - (rule ->> 'per_us')::bigint - (rule ->> 'lateness_us')::bigint
                         - case when rule ->> 'zone' is null then 0 else 3600000000 end
        or case when rule ->> 'zone' is null then p.window_us % (rule ->> 'per_us')::bigint <> 0
                -- For all nodes a day begins when the first node that published it says.
                else not exists (select from refundd.zone_days d
                                  where d.zone = rule ->> 'zone'
                                    and d.begins_at = timestamptz 'epoch' + p.window_us * interval '1 microsecond') end);

-- Whether a claim, or a grant to another service, may spend permits: `limits`, and for each its own rule in the node's
-- file and, where Redis named one, the stricter rule of another node's file; then one row for each permit. `apart` is how
-- far the clocks may differ, in us. For rules without numbered windows, `ledger_keeps_rules` counts after the commit.
create function refundd.permits_keep_rules(limits text[], own_rules text[], stricter_rules text[],
                                           names text[], windows bigint[], ordinals integer[], apart bigint) returns boolean
    language sql volatile
return not exists (
    select from unnest(limits, own_rules, stricter_rules) as t (name, own, stricter)
     cross join lateral (select array_agg(p.window_us) as windows, array_agg(p.ordinal) as ordinals
                           from unnest(names, windows, ordinals) as p (name, window_us, ordinal) where p.name = t.name) as l
     where l.windows is not null
       -- No file has a rule that no node ever published.
       and (t.stricter is not null and not exists (select from refundd.limit_rules r where r.limit_name = t.name and r.rule = t.stricter::jsonb)
            or coalesce(t.stricter, t.own)::jsonb ->> 'algorithm' = 'fixed_window'
               and not refundd.windows_keep_rule(coalesce(t.stricter, t.own)::jsonb, l.windows, l.ordinals, apart)));

-- Whether the permits of one limit that opened around these moments (in us) keep a rule without numbered windows: in no
-- span of per + lateness are more than the rule allows. For one span after a reload with other numbers, the span may hold
-- what the older numbers allowed. Where a rule allows more than 10,000, one call in N / 10,000 counts, so that a call reads
-- 10,000 permits on average.
create function refundd.spans_keep_rule(of_limit text, kept_rule jsonb, windows bigint[]) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    span  interval := ((kept_rule ->> 'per_us')::bigint + (kept_rule ->> 'lateness_us')::bigint - 1) * interval '1 microsecond';
    most  bigint := refundd.rule_most(kept_rule);
    first timestamptz;
    last  timestamptz;
begin
    if most > 10000 and random() > 10000.0 / most then
        return true;
    end if;
    select timestamptz 'epoch' + min(w) * interval '1 microsecond', timestamptz 'epoch' + max(w) * interval '1 microsecond'
      into first, last from unnest(windows) as t (w);
    select greatest(most, max(refundd.rule_most(r.rule))) into most
      from refundd.limit_rules r
     where r.limit_name = of_limit and refundd.rule_shape(r.rule) = refundd.rule_shape(kept_rule)
       and r.published_at >= coalesce((select max(b.published_at) from refundd.limit_rules b
                                        where b.limit_name = of_limit and b.published_at < now() - 2 * span - interval '10 seconds'), '-infinity');
    return not exists (
        select from (select p.window_start as at, count(*) over (order by p.window_start range between span preceding and current row) as n
                       from refundd.permits p
                      where p.limit_name = of_limit and p.window_start >= first - span and p.window_start <= last + span) as counted
         where counted.at >= first and counted.n > most);
end $$;

-- Whether the ledger keeps the rules around permits that are spent and committed: as many of them as their rules allow
-- are in it. A node asks after the commit of a claim, and sends nothing if the answer is no. So no claim waits for the
-- commit of another one, and of all permits whose answer was yes, the last one to be committed saw all the others.
create function refundd.ledger_keeps_rules(limits text[], own_rules text[], stricter_rules text[],
                                           names text[], windows bigint[], apart bigint) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    l record;
    l_windows bigint[];
begin
    for l in select t.name, t.own::jsonb as own, t.stricter::jsonb as stricter
               from unnest(limits, own_rules, stricter_rules) as t (name, own, stricter) loop
        select array_agg(p.window_us) into l_windows from unnest(names, windows) as p (name, window_us) where p.name = l.name;
        continue when l_windows is null;
        -- A published rule may be old. Whatever it allows, the node's own rule bounds what is spent by Postgres's clock.
        if l.stricter is not null
           and (select count(*) from refundd.permits p
                 where p.limit_name = l.name
                   and p.window_start > now() - ((l.stricter ->> 'per_us')::bigint + (l.own ->> 'per_us')::bigint + apart) * interval '1 microsecond'
                   and p.spent_at > clock_timestamp() - (l.own ->> 'per_us')::bigint * interval '1 microsecond')
               > refundd.rule_most(l.own) then
            return false;
        end if;
        if coalesce(l.stricter, l.own) ->> 'algorithm' <> 'fixed_window'
           and not refundd.spans_keep_rule(l.name, coalesce(l.stricter, l.own), l_windows) then
            return false;
        end if;
    end loop;
    return true;
end $$;

revoke execute on function refundd.rule_most, refundd.windows_keep_rule, refundd.permits_keep_rules, refundd.spans_keep_rule, refundd.ledger_keeps_rules from public;

-- Roles of nodes may call what their claims call.
do $$
declare
    role text;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner) loop
        execute format('grant execute on function refundd.rule_most, refundd.windows_keep_rule, refundd.permits_keep_rules,
                        refundd.spans_keep_rule, refundd.ledger_keeps_rules to %s', role);
    end loop;
end $$;
