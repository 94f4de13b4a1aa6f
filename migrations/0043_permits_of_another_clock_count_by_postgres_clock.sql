-- The count after a claim compared the openings of permits, which Redis's clock names. After another server took over, or after
-- Redis's clock was set, two permits may be named far apart and leave together. Usually the restored count in Redis kept them
-- apart; a Redis that had lost that count sent up to twice the limit. From now on permits of another clock count by Postgres's
-- clock, which wrote down when they were spent.

-- The most permits of a rule in a span: for one span after a reload with other numbers, as many as the older numbers allowed.
create function refundd.most_in_span(of_limit text, kept_rule jsonb, span interval) returns bigint
    language sql stable
return (
    select greatest(refundd.rule_most(kept_rule), max(refundd.rule_most(r.rule)))
      from refundd.limit_rules r
     where r.limit_name = of_limit and refundd.rule_shape(r.rule) = refundd.rule_shape(kept_rule)
       and r.published_at >= coalesce((select max(b.published_at) from refundd.limit_rules b
                                        where b.limit_name = of_limit and b.published_at < now() - 2 * span - interval '10 seconds'), '-infinity'));

-- Whether the permits of one limit that opened around these moments (in us) keep a rule, where
-- permits of two clocks may be among them. Of numbered windows, which begin every `per`, a span meets two. A permit that was spent before `other_until` may have been named by another clock
-- than these. It left at most `lead_us` and the rule's lateness after it was spent; a permit of another service
-- `furthest_us`. A permit leaves after it was spent, never before. `stretch` is by how much Postgres's clock was set forward
-- in the meantime.
create function refundd.clocks_keep_rule(of_limit text, kept_rule jsonb, windows bigint[], apart bigint,
                                         lead_us bigint, furthest_us bigint, other_until timestamptz, stepped_at timestamptz, stretch interval) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    -- How far apart two openings of one clock may be and still count together. The window before an own one counts, too.
    span     interval := ((kept_rule ->> 'per_us')::bigint + greatest((kept_rule ->> 'lateness_us')::bigint - 1, 0)) * interval '1 microsecond';
    lateness interval := (kept_rule ->> 'lateness_us')::bigint * interval '1 microsecond';
    lead     interval := lead_us * interval '1 microsecond';
    furthest interval := furthest_us * interval '1 microsecond';
    most     bigint := refundd.most_in_span(of_limit, kept_rule, span);
    -- Whichever clock named it. A variable, so that only the days that matter are read.
    oldest   timestamptz := clock_timestamp() - 2 * (span + furthest + stretch) - 2 * apart * interval '1 microsecond';
    asked    timestamptz[] := array(select timestamptz 'epoch' + w * interval '1 microsecond' from unnest(windows) as t (w) order by w);
begin
    if most > 10000 and random() > 10000.0 / most then
        return true; -- as refundd.spans_keep_rule
    end if;
    return (
        with near as materialized (
            select p.window_start as at, p.spent_at, p.spent_at + p.after as last_at, p.window_start = any(asked) as is_asked,
                   p.spent_at <= other_until or p.spent_at <= stepped_at + p.after + lateness as is_other
              from (select a.window_start, a.spent_at, case when a.caller is null then lead else furthest end as after
                      from refundd.permits a where a.limit_name = of_limit and a.window_start > oldest) as p
        ), counted as (
            select near.*, count(*) over (partition by is_other order by at range between span preceding and current row) as n from near
        ), earliest as (
            select min(spent_at) as at from near where is_asked or (not is_other and at >= asked[1])
        ), others as (
            select count(*) filter (where is_other) as before, count(*) as all_of_them
              from near, earliest where near.last_at + span + stretch >= earliest.at
        )
        select not exists (select from counted where not is_other and at >= asked[1] and n + others.before > most)
               -- A permit that is asked about may itself be named by the other clock: the clock was set after its grant.
               and (others.all_of_them <= most or not exists (select from near where is_asked and is_other))
          from others);
end $$;

-- As `refundd.ledger_keeps_rules`, which nodes of the last version still call, with both clocks: `generations` under which the
-- limits granted, `leads` and `furthest` (in us) as above, and for how long (in us) the node has seen Redis's clock run without a
-- step, null for always. `witnessed_us` is Postgres's time as the node's own clock carried it on, null if it has none.
create function refundd.spent_permits_keep_rules(limits text[], own_rules text[], stricter_rules text[], generations bigint[], leads bigint[], furthest bigint[],
                                                 clock_known_us bigint[], names text[], windows bigint[], apart bigint, witnessed_us bigint) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    l record;
    l_windows bigint[];
    rule jsonb;
    reach interval;
    stretch interval;
    other_until timestamptz;
    stepped_at timestamptz;
begin
    if not refundd.ledger_keeps_rules(limits, own_rules, stricter_rules, names, windows, apart) then
        return false;
    end if;
    for l in select t.*, c.generation as present, c.server_since
               from unnest(limits, own_rules, stricter_rules, generations, leads, furthest, clock_known_us)
                    as t (name, own, stricter, generation, lead, furthest, known)
               join refundd.limits c on c.limit_name = t.name loop
        rule := coalesce(l.stricter, l.own)::jsonb;
        -- Windows longer than any difference of the clocks are numbered the same by both clocks, but for their edges.
        continue when rule ->> 'algorithm' = 'fixed_window' and (rule ->> 'per_us')::bigint > 10000000;
        -- A time after now: Postgres's clock was set back by more than the clocks may be apart.
        other_until := case when l.server_since <= clock_timestamp() + apart * interval '1 microsecond' then l.server_since else '-infinity' end;
        stepped_at := coalesce(clock_timestamp() - l.known * interval '1 microsecond', '-infinity');
        reach := ((rule ->> 'per_us')::bigint + (rule ->> 'lateness_us')::bigint + 2 * l.furthest) * interval '1 microsecond' + interval '10 seconds';
        stretch := refundd.stepped_forward(clock_timestamp() - reach)
                   + greatest(interval '0', coalesce(clock_timestamp() - (timestamptz 'epoch' + witnessed_us * interval '1 microsecond'), interval '0'));
        -- So long ago that no permit of another clock can matter: what was counted above is all.
        continue when greatest(other_until, stepped_at) < clock_timestamp() - reach - stretch;
        select array_agg(p.window_us) into l_windows from unnest(names, windows) as p (name, window_us) where p.name = l.name;
        if l_windows is not null
           and (-- Another server took over after the claim.
                l.present <> l.generation and other_until > clock_timestamp() - reach
                and exists (select from unnest(l_windows) as t (w) join refundd.permits p on p.limit_name = l.name
                                   and p.window_start = timestamptz 'epoch' + t.w * interval '1 microsecond' and p.spent_at <= other_until)
                or not refundd.clocks_keep_rule(l.name, rule, l_windows, apart, l.lead, l.furthest, other_until, stepped_at, stretch)) then
            return false;
        end if;
    end loop;
    return true;
end $$;

revoke execute on function refundd.most_in_span, refundd.clocks_keep_rule, refundd.spent_permits_keep_rules from public;

-- Roles of nodes may call what their claims call.
do $$
declare
    role text;
begin
    for role in select a.grantee::regrole from pg_catalog.pg_proc n, pg_catalog.aclexplode(n.proacl) a
                 where n.oid = 'refundd.turn_permits'::regproc and a.grantee not in (0, n.proowner) loop
        execute format('grant execute on function refundd.most_in_span, refundd.clocks_keep_rule, refundd.spent_permits_keep_rules to %s', role);
    end loop;
end $$;
