-- After a claim the ledger counted how many permits a span has. A strict gap (`gap = "strict"`) promises more: no two slots nearer than
-- per / permits and the lateness. Redis alone kept that. Somebody who can write to Redis moved its grid of slots, and two requests left
-- within 13 ms of each other where 50 ms are promised. From now on the ledger looks at the gaps, too.

-- Whether no other permit of the limit opens nearer to one of these (in us) than one slot of `paced_strict`: `paced.lua` and
-- `Rule::spacing_us` have the same number.
create or replace function refundd.gaps_keep_rule(of_limit text, kept_rule jsonb, windows bigint[]) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    permits bigint := (kept_rule ->> 'permits')::bigint;
    slot    interval := (((kept_rule ->> 'per_us')::bigint + permits - 1) / permits + (kept_rule ->> 'lateness_us')::bigint) * interval '1 microsecond';
begin
    return not exists (
        select from unnest(windows) as t (w)
         cross join lateral (select timestamptz 'epoch' + t.w * interval '1 microsecond' as at) as opening
         where (select count(*) from refundd.permits p
                 where p.limit_name = of_limit and p.window_start > opening.at - slot and p.window_start < opening.at + slot) > 1);
end $$;

comment on function refundd.gaps_keep_rule is 'Whether spent permits of a limit with a strict gap are at least one slot apart from all others of the limit.';

-- As before (migration 0077), with the gaps.
create or replace function refundd.ledger_keeps_rules(limits text[], own_rules text[], stricter_rules text[],
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
        if l.stricter is not null and not refundd.own_rule_has_room(l.name, l.own, l.stricter, 0, apart) then
            return false;
        end if;
        if coalesce(l.stricter, l.own) ->> 'algorithm' <> 'fixed_window'
           and not refundd.spans_keep_rule(l.name, coalesce(l.stricter, l.own), l_windows) then
            return false;
        end if;
        if coalesce(l.stricter, l.own) ->> 'algorithm' = 'paced_strict'
           and not refundd.gaps_keep_rule(l.name, coalesce(l.stricter, l.own), l_windows) then
            return false;
        end if;
    end loop;
    return true;
end $$;

revoke execute on function refundd.gaps_keep_rule from public;

-- Roles of nodes may call what their claims call.
do $$
declare
    role regrole;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner) loop
        execute format('grant execute on function refundd.gaps_keep_rule to %s', role);
    end loop;
end $$;
