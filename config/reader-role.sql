-- The role of people and programs that only read, such as finance, auditors and reports: `refundd export`, `show`, `log`, `status`, `prove`,
-- and the lists of `review`. It may write nothing, and call no function that writes.
--
--     psql -d payments -f config/reader-role.sql
--
-- Run the script after `refundd migrate`, as a superuser, or as the owner of the schema `refundd` if that role
-- may also create roles. You may run it any number of times. The role then has exactly the rights below, or
-- the script changes nothing and names the obstacle. The schema of another version is such an obstacle. After going
-- back to an older version run no script: the rights stay.
--
-- The role cannot log in. Give it to the role of each [postgres] url that only reads:
--
--     grant refundd_reader to auditor;
--
-- The script does not check other rights of those roles.
--
-- The role sees all refunds of all channels, with their payloads, which may have data of persons: `refundd show` reads whole refunds. It sees
-- the names and the reasons of people, too. No secret of refundd is in the database.
--
-- The role belongs to the whole server. Where the server has a second database of refundd, members of the role have these rights
-- there, too, if they may connect. Every role may connect to a new database until its owner revokes that:
--
--     grant connect on database payments to auditor;          -- and to all others that use the database
--     revoke connect on database payments from public;
--
-- The script does not revoke it, because it does not know which other programs use the database.

\set ON_ERROR_STOP on

begin;

-- On Postgres 14 every role may create objects in the schema `public`. None of them is called here.
set local search_path = pg_catalog, pg_temp;

-- The script first takes all rights, and then gives those that it knows. On a newer schema readers would lack the rights on what is new
-- there.
do $$
declare
    -- The last migration that this script knows.
    own constant bigint := 94;
    applied bigint;
begin
    if to_regclass('refundd.migrations') is null then
        raise exception 'the database `%` has no schema of refundd', current_database()
            using hint = 'Nothing was changed. Name the database of refundd, or run `refundd migrate` first.';
    end if;
    select coalesce(max(version), 0) into applied from refundd.migrations where success;
    if applied > own then
        raise exception 'the schema is newer (%) than this script (%)', applied, own
            using hint = 'Nothing was changed: the rights of the newer version stay in force, also for older programs. '
                         'To give them again, run the file of the newer version.';
    elsif applied < own then
        raise exception 'the schema is older (%) than this script (%)', applied, own
            using hint = 'Nothing was changed. Run `refundd migrate` of this version first, and then this script again.';
    end if;
end $$;

-- Roles belong to the whole server, so the role may exist already, made for another database.
do $$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'refundd_reader') then
        create role refundd_reader nologin noinherit;
        comment on role refundd_reader is 'Readers of refundd: may do what `refundd export`, `show`, `log`, `status` and `prove` do, and write nothing.';
    end if;
end $$;

-- Start without rights. Revoking all on a table also revokes the grants on its columns.
revoke all on all tables in schema refundd from refundd_reader;
revoke all on all sequences in schema refundd from refundd_reader;
revoke all on all functions in schema refundd from refundd_reader;
revoke all on schema refundd from refundd_reader;

grant usage on schema refundd to refundd_reader;

-- The commands check the version of the schema first.
grant select on refundd.migrations to refundd_reader;
-- Refunds with their journal and events, and who waits for a second person.
grant select on refundd.refunds, refundd.attempts, refundd.events, refundd.proposals to refundd_reader;
-- What `prove` counts again: the ledger with its rules, and the seals of the journal.
grant select on refundd.permits, refundd.limits, refundd.limit_rules, refundd.zone_days, refundd.seals, refundd.sealing, refundd.dropped_months,
                refundd.retention to refundd_reader;
-- What `status` shows: channels, their counts and causes of rest, shares of limits, and the reports of nodes.
grant select on refundd.channels, refundd.suspensions, refundd.suspended, refundd.ended, refundd.ended_until, refundd.limit_shares, refundd.nodes
    to refundd_reader;

-- Functions that read. refundd.feed_reach has its owner's rights: it tells `export` which transactions may still write to the journal.
grant execute on function refundd.attempts_since, refundd.counts, refundd.feed_reach, refundd.may_have_been_executed, refundd.slow_share,
                          refundd.slow_steps, refundd.spans, refundd.stepped_back,
                          refundd.may_be_resent(timestamptz, integer, timestamptz, interval, integer)
    to refundd_reader;

-- Finds rights that the role has from elsewhere: PUBLIC, a membership or another grantor.
do $$
declare
    excess text;
begin
    select string_agg(what, ', ' order by what) into excess from (
        select format('%s on table %s', right_, c.relname) as what
          from pg_catalog.pg_class c
          cross join unnest(array['DELETE', 'TRUNCATE', 'TRIGGER']) as right_
         where c.relnamespace = 'refundd'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
           and has_table_privilege('refundd_reader', c.oid, right_)
        union all
        select format('%s on table %s', right_, c.relname)
          from pg_catalog.pg_class c
          cross join unnest(array['INSERT', 'UPDATE', 'REFERENCES']) as right_
         where c.relnamespace = 'refundd'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
           and has_any_column_privilege('refundd_reader', c.oid, right_)
        union all
        select format('%s on sequence %s', right_, c.relname)
          from pg_catalog.pg_class c
          cross join unnest(array['USAGE', 'UPDATE']) as right_
         where c.relnamespace = 'refundd'::regnamespace
           and case when c.relkind = 'S' then has_sequence_privilege('refundd_reader', c.oid, right_) end
        union all
        select format('EXECUTE on function %s', p.oid::regprocedure)
          from pg_catalog.pg_proc p
         where p.pronamespace = 'refundd'::regnamespace and has_function_privilege('refundd_reader', p.oid, 'execute')
           and p.proname not in ('attempts_since', 'counts', 'feed_reach', 'may_have_been_executed', 'slow_share', 'slow_steps', 'spans',
                                 'stepped_back', 'may_be_resent')
        union all
        select 'CREATE on schema refundd' where has_schema_privilege('refundd_reader', 'refundd', 'create')
    ) found;
    if excess is not null then
        raise exception 'refundd_reader may do more than it should: %', excess
            using hint = 'Revoke it where it comes from (PUBLIC, a membership, another grantor), then run this again.';
    end if;
end $$;

commit;
