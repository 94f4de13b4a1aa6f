-- A Redis whose program lies could name permits far from the moment at which they leave, and say that an old published rule is the
-- stricter one. Only windows were checked against the clock, so the count after a claim looked at the wrong spans, and a
-- limit that had been lowered could be used at its older number. From now on every permit is named near this moment, and a stricter
-- rule is stricter.

-- Whether a rule is stricter than another one, in the order of rule.lua: a lower rate, then fewer at once, then a longer
-- lateness, then the text.
create function refundd.rule_is_stricter(rule text, other text) returns boolean
    language sql immutable strict parallel safe
return (select (a.permits * b.per, a.at_once, b.lateness, rule collate "C") < (b.permits * a.per, b.at_once, a.lateness, other collate "C")
          from lateral (select (rule::jsonb ->> 'permits')::numeric as permits, (rule::jsonb ->> 'per_us')::numeric as per, (rule::jsonb ->> 'lateness_us')::bigint as lateness,
                               case rule::jsonb ->> 'algorithm' when 'paced' then 1 when 'paced_strict' then 0 else refundd.rule_most(rule::jsonb) end as at_once) as a,
               lateral (select (other::jsonb ->> 'permits')::numeric as permits, (other::jsonb ->> 'per_us')::numeric as per, (other::jsonb ->> 'lateness_us')::bigint as lateness,
                               case other::jsonb ->> 'algorithm' when 'paced' then 1 when 'paced_strict' then 0 else refundd.rule_most(other::jsonb) end as at_once) as b);

-- Whether permits of a rule without numbered windows open around this moment, as far as the clocks agree (`apart`, in us).
create function refundd.openings_are_near(rule jsonb, openings bigint[], apart bigint) returns boolean
    language sql volatile
return not exists (
    select from unnest(openings) as p (at_us)
     cross join (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as us) as here
     where p.at_us > here.us + apart or p.at_us < here.us - apart - (rule ->> 'lateness_us')::bigint);

-- As before (migration 0030), with these two checks.
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
                and not (refundd.rule_is_stricter(t.stricter, t.own)
                         and exists (select from refundd.limit_rules r where r.limit_name = t.name and r.rule = t.stricter::jsonb))
            or case coalesce(t.stricter, t.own)::jsonb ->> 'algorithm'
                   when 'fixed_window' then not refundd.windows_keep_rule(coalesce(t.stricter, t.own)::jsonb, l.windows, l.ordinals, apart)
                   else not refundd.openings_are_near(coalesce(t.stricter, t.own)::jsonb, l.windows, apart) end));

-- As before (migration 0044), with one way to count in place of two, and every claim counts up to 100,000 permits in a span, where it
-- counted up to 10,000: 10 to 13 ms for each claim of such a limit.
create or replace function refundd.spans_keep_rule(of_limit text, kept_rule jsonb, windows bigint[]) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    span   interval := ((kept_rule ->> 'per_us')::bigint + (kept_rule ->> 'lateness_us')::bigint - 1) * interval '1 microsecond';
    most   bigint := refundd.rule_most(kept_rule);
    bounds record;
    openings timestamptz[];
    first  timestamptz;
    newest timestamptz;
    before bigint;
    before_since bigint := 0;
begin
    if most > 100000 and random() > 100000.0 / most then
        return true;
    end if;
    bounds := refundd.bounds_in_span(of_limit, kept_rule, span);
    openings := array(select timestamptz 'epoch' + w * interval '1 microsecond' from unnest(windows) as t (w) order by w);
    first := openings[1];
    newest := openings[cardinality(openings)] + span;
    select max(p.window_start) into newest from refundd.permits p
     where p.limit_name = of_limit and p.window_start >= first and p.window_start <= newest;
    select count(*) into before from refundd.permits p
     where p.limit_name = of_limit and p.window_start >= first - span and p.window_start < first;
    if bounds.most > bounds.own then
        -- Without a reload the count of all permits is the stricter one.
        select count(*) into before_since from refundd.permits p
         where p.limit_name = of_limit and p.window_start >= first - span and p.window_start < first and p.spent_at > bounds.since;
    end if;
    return not exists (
        select from (select moment.at, moment.step, sum(moment.step) over so_far as n, sum(moment.step * moment.is_since) over so_far as n_since
                       from (select p.window_start as at, 1 as step, (p.spent_at > bounds.since)::int as is_since from refundd.permits p
                              where p.limit_name = of_limit and p.window_start >= first and p.window_start <= newest
                             union all
                             select p.window_start + span + interval '1 microsecond', -1, (p.spent_at > bounds.since)::int from refundd.permits p
                              where p.limit_name = of_limit and p.window_start >= first - span and p.window_start < newest - span) as moment
                     window so_far as (order by moment.at)) as counted
         where counted.step = 1
           and (before + counted.n > bounds.most
                or bounds.most > bounds.own
                   and before_since + counted.n_since > case when counted.at = any(openings) then bounds.own else bounds.since_most end));
end $$;

-- As before (migration 0030), and a rule of another shape in the place of a fixed window leaves no more than the window's number
-- in any span of it.
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
        if l.stricter is not null
           and (select count(*) from refundd.permits p
                 where p.limit_name = l.name
                   and p.window_start > now() - ((l.stricter ->> 'per_us')::bigint + (l.own ->> 'per_us')::bigint + apart) * interval '1 microsecond'
                   and p.spent_at > clock_timestamp() - (l.own ->> 'per_us')::bigint * interval '1 microsecond')
               > (case when l.own ->> 'algorithm' = 'fixed_window' and refundd.rule_shape(l.own) <> refundd.rule_shape(l.stricter)
                       then (l.own ->> 'permits')::bigint else refundd.rule_most(l.own) end) then
            return false;
        end if;
        if coalesce(l.stricter, l.own) ->> 'algorithm' <> 'fixed_window'
           and not refundd.spans_keep_rule(l.name, coalesce(l.stricter, l.own), l_windows) then
            return false;
        end if;
    end loop;
    return true;
end $$;

revoke execute on function refundd.rule_is_stricter, refundd.openings_are_near from public;

-- Roles of nodes may call what their claims call.
do $$
declare
    role text;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner) loop
        execute format('grant execute on function refundd.rule_is_stricter, refundd.openings_are_near to %s', role);
    end loop;
end $$;
