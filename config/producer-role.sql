-- The role of a producer: it may save refunds and see how they fare, and nothing more.
--
--     psql -d payments -f config/producer-role.sql
--
-- Run it after `refundd migrate`, as a superuser, or as the owner of the schema `refundd` if that one
-- may also create roles. It may be run any number of times: it ends with exactly the rights below, or
-- changes nothing and says what stood in the way.
--
-- The role cannot log in. Give it to the roles your services log in as:
--
--     grant refundd_producer to shop;
--
-- Rights that such a role holds besides are not this script's business.

\set ON_ERROR_STOP on

begin;

-- Roles belong to the whole server, so it may be there already, made for another database.
do $$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'refundd_producer') then
        create role refundd_producer nologin noinherit;
        comment on role refundd_producer is
            'Producers of refunds: may insert them, call refundd.enqueue() and see how they fare.';
    end if;
end $$;

-- Begin with nothing. Revoking all on a table also takes back what was granted on its columns.
revoke all on all tables in schema refundd from refundd_producer;
revoke all on all sequences in schema refundd from refundd_producer;
revoke all on all functions in schema refundd from refundd_producer;
revoke all on schema refundd from refundd_producer;

grant usage on schema refundd to refundd_producer;

-- What a producer says. Everything else has its default: the row is `ready`, under ids of our own.
grant insert (refund_ref, channel, payment_ref, amount_minor, currency, payload, due_at, deadline_at)
    on refundd.refunds to refundd_producer;

-- How it fares. The payment, the amount and the payload stay with those who sent them.
grant select (id, refund_ref, channel, state, attempts, created_at, settled_at)
    on refundd.refunds to refundd_producer;

grant execute on function refundd.enqueue(text, text, text, bigint, text, jsonb, timestamptz, timestamptz)
    to refundd_producer;

-- Whatever reached it another way, through PUBLIC, a membership or another grantor, is found here.
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
             or right_ = 'SELECT' and a.attname in ('id', 'refund_ref', 'channel', 'state', 'attempts',
                                                    'created_at', 'settled_at')))
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
