-- A channel whose bank takes less than the configured rate is slowed and speeds up again for ever. Each step is a rule of its own limit,
-- NAME.slowed: 20,000 a day at 20 a second. Nothing deleted these rules, and each pass of recovery read them all. After months that
-- took longer than a statement may, and the ledger was turned no more.

-- As before (migration 0027), and of a slowed channel's own limit the present rule alone counts: the bank promised nothing of it.
create or replace function refundd.permits_are_kept_for(keep interval) returns interval
    language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    select greatest(kept.at_least, (
        select max(2 * ruled.memory) * interval '1 microsecond'
          from (select l.limit_name,
                       greatest(refundd.rule_memory(l.rule), published.memory,
                                case when l.older_at > now() - (l.older_us + refundd.rule_memory(l.rule)) * interval '1 microsecond'
                                     then refundd.rule_memory(l.rule) + l.older_us end) as memory
                  from refundd.limits l
                 cross join lateral (
                       select max(r.memory) as memory
                         from (select refundd.rule_memory(p.rule) as memory, lead(p.published_at) over (order by p.published_at) as until
                                 from refundd.limit_rules p where p.limit_name = l.limit_name and right(l.limit_name, 7) <> '.slowed') r
                        where r.until is null or r.until > now() - 2 * r.memory * interval '1 microsecond') published) ruled
         where ruled.memory * interval '1 microsecond' > kept.at_least / 2
           and exists (select from refundd.permits p where p.limit_name = ruled.limit_name)))
      from (select refundd.evidence_is_kept_for('permits', keep) as at_least) kept;
end;

-- As before (migration 0059), and rules of slowed channels go with the permits that were spent under them.
create or replace function refundd.turn_permits(keep interval) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    kept    interval := refundd.permits_are_kept_for(keep);
    dropped integer;
    oldest  timestamptz;
begin
    perform set_config('lock_timeout', '100ms', true);
    perform refundd.make_spans('permits', 'day', '');
    select refundd.drop_spans(array_agg(s.name order by s.until)) into dropped
      from refundd.spans('permits') s where s.until < now() - kept - refundd.stepped_forward(s.until);
    select now() - kept - refundd.stepped_forward(min(p.window_start)) into oldest from refundd.permits_of_other_days p;
    delete from refundd.permits_of_other_days where ctid = any(array(
        select p.ctid from refundd.permits_of_other_days p where p.window_start < oldest limit 5000));
    -- Permits go by whole days. The newest of the rules that old is the one by which the oldest permits were spent.
    delete from refundd.limit_rules where ctid = any(array(
        select r.ctid
          from refundd.limits l
         cross join lateral (select now() - kept - interval '1 day' - refundd.stepped_forward(min(m.published_at)) as at
                               from refundd.limit_rules m where m.limit_name = l.limit_name) edge
         cross join lateral (select max(n.published_at) as at from refundd.limit_rules n
                              where n.limit_name = l.limit_name and n.published_at < edge.at) newest
          join refundd.limit_rules r on r.limit_name = l.limit_name and r.published_at < newest.at
         where right(l.limit_name, 7) = '.slowed' limit 5000));
    return dropped;
end $$;
