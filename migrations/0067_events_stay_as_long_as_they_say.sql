-- refundd.forget_events counts a retention of '6 months' as 180 days of seconds, and this trigger went by the calendar: up to 184 days. One
-- event between the two, and no event was forgotten any more. Now both ask one function.
create or replace function refundd.events_are_only_added() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        if old.at < now() - refundd.evidence_is_kept_for('events', interval '1 second') then
            return old;
        end if;
        raise exception 'event % is younger than refundd.retention allows to drop', old.event_id using errcode = 'RD003';
    end if;
    raise exception 'refundd.events is append-only' using errcode = 'RD003';
end $$;
