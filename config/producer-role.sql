-- The role of a producer: it may save refunds and read their state, and nothing more.
--
--     psql -d payments -f config/producer-role.sql
--
-- Run the script after `refundd migrate`, as a superuser, or as the owner of the schema `refundd` if that role
-- may also create roles. You may run it any number of times. The role then has exactly the rights below, or
-- the script changes nothing and names the obstacle. The schema of another version is such an obstacle. After going
-- back to an older version run no script: the rights stay.
--
-- The role cannot log in. Grant it to the roles of your services:
--
--     grant refundd_producer to shop;
--
-- The script does not check other rights of those roles.
--
-- The role belongs to the whole server. Where the server has a second database of refundd, members of the role have these rights
-- there, too, if they may connect. Every role may connect to a new database until its owner revokes that:
--
--     grant connect on database payments to shop;             -- and to all others that use the database
--     revoke connect on database payments from public;
--
-- The script does not revoke it, because it does not know which other programs use the database.

\set ON_ERROR_STOP on

begin;

-- On Postgres 14 every role may create objects in the schema `public`. None of them is called here.
set local search_path = pg_catalog, pg_temp;

-- The script first takes all rights, and then gives those that it knows. On a newer schema nodes and producers would lack the rights on
-- what is new there, and triggers that call a new function would stop claims and saves.
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
            using hint = 'Nothing was changed: the rights of the newer version stay in force, also for older nodes and producers. '
                         'To give them again, run the file of the newer version.';
    elsif applied < own then
        raise exception 'the schema is older (%) than this script (%)', applied, own
            using hint = 'Nothing was changed. Run `refundd migrate` of this version first, and then this script again.';
    end if;
end $$;

-- Roles belong to the whole server, so the role may exist already, made for another database.
do $$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'refundd_producer') then
        create role refundd_producer nologin noinherit;
        comment on role refundd_producer is
            'Producers of refunds: may insert them, call refundd.enqueue() and see how they fare.';
    end if;
end $$;

-- Start without rights. Revoking all on a table also revokes the grants on its columns.
revoke all on all tables in schema refundd from refundd_producer;
revoke all on all sequences in schema refundd from refundd_producer;
revoke all on all functions in schema refundd from refundd_producer;
revoke all on schema refundd from refundd_producer;

grant usage on schema refundd to refundd_producer;

-- The columns that a producer writes. All other columns have defaults: the row is `ready`, with an id of refundd's.
grant insert (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_at, deadline_at)
    on refundd.refunds to refundd_producer;

-- The columns that a producer reads. Payment, amount and payload are not among them.
grant select (id, refund_ref, channel, saved_channel, state, attempts, created_at, settled_at)
    on refundd.refunds to refundd_producer;

grant execute on function refundd.enqueue(text, text, text, bigint, text, jsonb, timestamptz, timestamptz)
    to refundd_producer;

-- Row-level security calls it, once the owner has bound a producer to its channels: refundd.bind_producer().
grant execute on function refundd.channels_of_producer to refundd_producer;

-- Finds rights that the role has from elsewhere: PUBLIC, a membership or another grantor.
do $$
declare
    excess text;
begin
    select string_agg(what, ', ' order by what) into excess from (
        select format('%s on column %s.%s', right_, c.relname, a.attname) as what
          from pg_catalog.pg_class c
          join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) as right_
         where c.relnamespace = 'refundd'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
           and has_column_privilege('refundd_producer', c.oid, a.attnum, right_)
           and not (c.relname = 'refunds' and (
                right_ = 'INSERT' and a.attname in ('refund_ref', 'channel', 'payment_ref', 'amount_minor',
                                                    'currency', 'payload', 'due_at', 'deadline_at')
             or right_ = 'SELECT' and a.attname in ('id', 'refund_ref', 'channel', 'saved_channel', 'state',
                                                    'attempts', 'created_at', 'settled_at')))
        union all
        select format('%s on table %s', right_, c.relname)
          from pg_catalog.pg_class c
          cross join unnest(array['DELETE', 'TRUNCATE', 'TRIGGER']) as right_
         where c.relnamespace = 'refundd'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
           and has_table_privilege('refundd_producer', c.oid, right_)
    ) found;
    if excess is not null then
        raise exception 'refundd_producer may do more than it should: %', excess
            using hint = 'Revoke it where it comes from (PUBLIC, a membership, another grantor), then run this again.';
    end if;
end $$;

commit;
