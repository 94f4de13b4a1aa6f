-- A producer that traces its requests could not follow a refund to the bank. Now the row keeps the `traceparent` that came with the
-- refund, and every send carries it.
-- Nodes of the last version go on as before: they leave the column empty and do not read it.
alter table refundd.refunds add column traceparent text;

comment on column refundd.refunds.traceparent is 'The trace that the refund belongs to, and the caller''s span in it, by W3C Trace Context: https://www.w3.org/TR/trace-context/. Null: none came, or a bad one.';

-- Not validated: every row from before is null, and a look at all of them would keep producers waiting.
alter table refundd.refunds add constraint refunds_traceparent_is_of_version_00
    check (traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$') not valid;

-- A role of nodes may save it from now on, also before config/node-role.sql is run again: a save names the column. Nodes alone may
-- update lease_epoch.
do $$
declare
    kept record;
begin
    for kept in
        select distinct a.grantee::regrole as role
          from pg_catalog.pg_attribute c, pg_catalog.aclexplode(c.attacl) a
         where c.attrelid = 'refundd.refunds'::regclass and c.attname = 'lease_epoch'
           and a.privilege_type = 'UPDATE' and a.grantee <> 0
    loop
        execute format('grant insert (traceparent) on refundd.refunds to %s', kept.role);
    end loop;
end $$;
