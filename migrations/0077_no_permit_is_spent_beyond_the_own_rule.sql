-- While nodes' files differ, Redis grants under the stricter rule, and the rule of the node's own file bounds what is spent, too. That
-- bound was counted only after a claim had spent its permits. So a node with the old file spent permits of the new rule, found its
-- own rule exceeded and sent nothing, again and again. A limit of a day lost 80 to 160 permits a second in this way. From now on a
-- claim counts that bound before it spends, too.

-- Whether a limit's own rule in the file of a node allows `wanted` more permits now. Postgres's clock counts, whatever the stricter
-- rule names the permits. `apart` is how far clocks may differ, in us.
create or replace function refundd.own_rule_has_room(of_limit text, own jsonb, stricter jsonb, wanted bigint, apart bigint) returns boolean
    language sql volatile
return (select count(*) from refundd.permits p
         where p.limit_name = of_limit
           and p.window_start > now() - ((stricter ->> 'per_us')::bigint + (own ->> 'per_us')::bigint + apart) * interval '1 microsecond'
           and p.spent_at > clock_timestamp() - (own ->> 'per_us')::bigint * interval '1 microsecond') + wanted
       <= case when own ->> 'algorithm' = 'fixed_window' and refundd.rule_shape(own) <> refundd.rule_shape(stricter)
               then (own ->> 'permits')::bigint else refundd.rule_most(own) end;

comment on function refundd.own_rule_has_room is 'Whether a node may spend so many more permits of a limit by the rule of its own file, while another node''s stricter rule counts.';

-- As before (migration 0050), with this check. Claims that run at once do not see each other; the count after them does.
create or replace function refundd.permits_keep_rules(limits text[], own_rules text[], stricter_rules text[],
                                           names text[], windows bigint[], ordinals integer[], apart bigint) returns boolean
    language sql volatile
return not exists (
    select from unnest(limits, own_rules, stricter_rules) as t (name, own, stricter)
     cross join lateral (select array_agg(p.window_us) as windows, array_agg(p.ordinal) as ordinals
                           from unnest(names, windows, ordinals) as p (name, window_us, ordinal) where p.name = t.name) as l
     where l.windows is not null
       -- No file has a rule that no node ever published. A published rule may be an old one, which a node does not obey.
       and (t.stricter is not null
                and (not (refundd.rule_is_stricter(t.stricter, t.own)
                          and exists (select from refundd.limit_rules r where r.limit_name = t.name and r.rule = t.stricter::jsonb))
                     or not refundd.own_rule_has_room(t.name, t.own::jsonb, t.stricter::jsonb, cardinality(l.windows), apart))
            or case coalesce(t.stricter, t.own)::jsonb ->> 'algorithm'
                   when 'fixed_window' then not refundd.windows_keep_rule(coalesce(t.stricter, t.own)::jsonb, l.windows, l.ordinals, apart)
                   else not refundd.openings_are_near(coalesce(t.stricter, t.own)::jsonb, l.windows, apart) end));

-- As before (migration 0050), with the bound in a function of its own.
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
    end loop;
    return true;
end $$;

revoke execute on function refundd.own_rule_has_room from public;

-- Roles of nodes may call what their claims call.
do $$
declare
    role regrole;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner) loop
        execute format('grant execute on function refundd.own_rule_has_room to %s', role);
    end loop;
end $$;
