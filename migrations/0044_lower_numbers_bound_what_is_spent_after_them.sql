-- For one span after a reload with lower numbers, and ten seconds more, the count after a claim allowed what the older numbers
-- allowed. A Redis that lost its count in that time sent up to the older number. From now on what is spent a second
-- after the reload must keep the lower number by itself.

drop function refundd.most_in_span;

-- How many permits a span may hold. `most`: of all permits, as many as the rule or one that it replaced within this span allows.
-- Of those spent after `since`, a second after the rule came into force, only `own` up to a permit of the rule itself, and
-- `since_most` up to a permit of another claim, which a newer rule may have allowed. A rule that no node published
-- is taken for an old one.
create function refundd.bounds_in_span(of_limit text, kept_rule jsonb, span interval, out most bigint, out own bigint, out since timestamptz, out since_most bigint)
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    began timestamptz := coalesce((select r.published_at from refundd.limit_rules r
                                    where r.limit_name = of_limit and r.rule = kept_rule order by r.published_at desc limit 1), '-infinity');
    older timestamptz := coalesce((select max(r.published_at) from refundd.limit_rules r
                                    where r.limit_name = of_limit and r.published_at < now() - 2 * span - interval '10 seconds'), '-infinity');
begin
    own := refundd.rule_most(kept_rule);
    since := began + interval '1 second';
    select greatest(own, max(refundd.rule_most(r.rule))), greatest(own, max(refundd.rule_most(r.rule)) filter (where r.published_at >= began))
      into most, since_most
      from refundd.limit_rules r
     where r.limit_name = of_limit and r.published_at >= older and refundd.rule_shape(r.rule) = refundd.rule_shape(kept_rule);
end $$;

-- As before (migration 0030), with these bounds. It read every permit of two spans one by one, for each claim. Now only the permits that opened since the first of these, and those that left a span meanwhile, are
-- read one by one. The others are only counted.
create or replace function refundd.spans_keep_rule(of_limit text, kept_rule jsonb, windows bigint[]) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    span   interval := ((kept_rule ->> 'per_us')::bigint + (kept_rule ->> 'lateness_us')::bigint - 1) * interval '1 microsecond';
    most   bigint := refundd.rule_most(kept_rule);
    bounds record;
    asked  timestamptz[];
    first  timestamptz;
    newest timestamptz;
    before bigint;
begin
    if most > 10000 and random() > 10000.0 / most then
        return true;
    end if;
    bounds := refundd.bounds_in_span(of_limit, kept_rule, span);
    asked := array(select timestamptz 'epoch' + w * interval '1 microsecond' from unnest(windows) as t (w) order by w);
    first := asked[1];
    newest := asked[cardinality(asked)] + span;
    if bounds.most > bounds.own then
        return not exists (
            select from (select p.window_start as at, count(*) over spans as n, count(*) filter (where p.spent_at > bounds.since) over spans as n_since
                           from refundd.permits p
                          where p.limit_name = of_limit and p.window_start >= first - span and p.window_start <= newest
                         window spans as (order by p.window_start range between span preceding and current row)) as counted
             where counted.at >= first
               and (counted.n > bounds.most
                    or counted.n_since > case when counted.at = any(asked) then bounds.own else bounds.since_most end));
    end if;
    select max(p.window_start) into newest from refundd.permits p
     where p.limit_name = of_limit and p.window_start >= first and p.window_start <= newest;
    select count(*) into before from refundd.permits p
     where p.limit_name = of_limit and p.window_start >= first - span and p.window_start < first;
    return not exists (
        select from (select moment.step, sum(moment.step) over (order by moment.at) as n
                       from (select p.window_start as at, 1 as step from refundd.permits p
                              where p.limit_name = of_limit and p.window_start >= first and p.window_start <= newest
                             union all
                             select p.window_start + span + interval '1 microsecond', -1 from refundd.permits p
                              where p.limit_name = of_limit and p.window_start >= first - span and p.window_start < newest - span) as moment) as counted
         where counted.step = 1 and before + counted.n > bounds.own);
end $$;

-- As before (migration 0043), with these bounds.
create or replace function refundd.clocks_keep_rule(of_limit text, kept_rule jsonb, windows bigint[], apart bigint,
                                         lead_us bigint, furthest_us bigint, other_until timestamptz, stepped_at timestamptz, stretch interval) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    -- How far apart two openings of one clock may be and still count together. The window before an own one counts, too.
    span     interval := ((kept_rule ->> 'per_us')::bigint + greatest((kept_rule ->> 'lateness_us')::bigint - 1, 0)) * interval '1 microsecond';
    lateness interval := (kept_rule ->> 'lateness_us')::bigint * interval '1 microsecond';
    lead     interval := lead_us * interval '1 microsecond';
    furthest interval := furthest_us * interval '1 microsecond';
    bounds   record := refundd.bounds_in_span(of_limit, kept_rule, span);
    -- Whichever clock named it. A variable, so that only the days that matter are read.
    oldest   timestamptz := clock_timestamp() - 2 * (span + furthest + stretch) - 2 * apart * interval '1 microsecond';
    asked    timestamptz[] := array(select timestamptz 'epoch' + w * interval '1 microsecond' from unnest(windows) as t (w) order by w);
begin
    if bounds.most > 10000 and random() > 10000.0 / bounds.most then
        return true; -- as refundd.spans_keep_rule
    end if;
    return (
        with near as materialized (
            select p.window_start as at, p.spent_at, p.spent_at + p.after as last_at, p.window_start = any(asked) as is_asked,
                   p.spent_at <= other_until or p.spent_at <= stepped_at + p.after + lateness as is_other
              from (select a.window_start, a.spent_at, case when a.caller is null then lead else furthest end as after
                      from refundd.permits a where a.limit_name = of_limit and a.window_start > oldest) as p
        ), counted as (
            select near.*, count(*) over of_one_clock as n, count(*) filter (where spent_at > bounds.since) over of_one_clock as n_since
              from near window of_one_clock as (partition by is_other order by at range between span preceding and current row)
        ), earliest as (
            select min(spent_at) as at from near where is_asked or (not is_other and at >= asked[1])
        ), others as (
            select count(*) filter (where is_other) as before, count(*) filter (where is_other and spent_at > bounds.since) as before_since,
                   count(*) as all_of_them, count(*) filter (where spent_at > bounds.since) as all_since
              from near, earliest where near.last_at + span + stretch >= earliest.at
        )
        select not exists (select from counted
                            where not is_other and at >= asked[1]
                              and (n + others.before > bounds.most
                                   or n_since + others.before_since > case when is_asked then bounds.own else bounds.since_most end))
               -- A permit that is asked about may itself be named by the other clock: the clock was set after its grant.
               and (others.all_of_them <= bounds.most and others.all_since <= bounds.since_most
                    or not exists (select from near where is_asked and is_other))
          from others);
end $$;

revoke execute on function refundd.bounds_in_span from public;

-- Roles of nodes may call what their claims call.
do $$
declare
    role text;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner) loop
        execute format('grant execute on function refundd.bounds_in_span to %s', role);
    end loop;
end $$;
