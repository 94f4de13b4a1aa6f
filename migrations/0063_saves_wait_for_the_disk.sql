-- A producer's role, database or session may have `synchronous_commit = off` or `local`. Then a crash of Postgres, or the promotion of the
-- synchronous standby, lost refunds whose commit the producer had seen. Nodes set the setting for themselves only.

create function refundd.saves_wait_for_the_disk() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform set_config('synchronous_commit', 'on', true);
    return null;
end $$;

comment on function refundd.saves_wait_for_the_disk is 'Makes the commit of a producer''s transaction wait until its refunds are kept.';

revoke execute on function refundd.saves_wait_for_the_disk from public;

create trigger refunds_are_kept_when_they_are_saved before insert on refundd.refunds
    for each statement when (current_setting('synchronous_commit') in ('off', 'local'))
    execute function refundd.saves_wait_for_the_disk();
