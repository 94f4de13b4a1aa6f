-- Of two steps back, the second one's `before` is a time on a clock that the first had already set back, so it looked earlier
-- than a period that had begun before both: the period was measured without the first alone, and a key was counted on
-- for too long. Steps now count by their order: a period that began before a step began before every later one.
-- Nodes of the last version call these functions as before.
create or replace function refundd.stepped_forward(since timestamptz) returns interval
    language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
return (select coalesce(sum(s.step_by), interval '0') from refundd.clock_steps s
         where s.step_by > interval '0' and s.step >= (select min(f.step) from refundd.clock_steps f where f.before >= since));

create or replace function refundd.stepped_back(since timestamptz) returns interval
    language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
return (select coalesce(-sum(s.step_by), interval '0') from refundd.clock_steps s
         where s.step_by < interval '0' and s.step >= (select min(f.step) from refundd.clock_steps f where f.before >= since));
