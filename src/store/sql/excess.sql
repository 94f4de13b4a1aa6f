-- excess: what the role of this connection may do beyond what a node needs.
-- :table_name, :table_right   one row for each right that a node has on whole rows of a table
-- :fixed_column                       columns of `refunds` that nobody may update
-- :function                   functions that a node calls
-- A superuser and the owner of the tables have every right, so the statement lists none of theirs.
    with ours as (select oid from pg_catalog.pg_namespace where nspname = 'refundd'),
    tables as (
        select c.oid, c.relname, c.relowner from pg_catalog.pg_class c join ours on c.relnamespace = ours.oid
         where c.relkind in ('r', 'p')
    ), me as (
        select r.oid, r.rolname, r.rolsuper, r.rolcreaterole, r.rolreplication, r.rolbypassrls,
               exists (select from tables t where pg_has_role(t.relowner, 'member')) as is_owner
          from pg_catalog.pg_roles r where r.rolname = current_user
    )
    select me.rolname::text as role, me.rolsuper as is_superuser, me.is_owner, array(
        select word.has from (values (me.rolcreaterole, 'createrole'), (me.rolreplication, 'replication'), (me.rolbypassrls, 'bypassrls'))
               as word (is_set, has) where word.is_set
        union all
        select 'membership in ' || r.rolname from pg_catalog.pg_roles r
         where r.rolname in ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files', 'pg_signal_backend')
           and pg_has_role(r.oid, 'member')
        union all
        select 'create in schema refundd' from ours where has_schema_privilege(ours.oid, 'create')
        union all
        select a.table_right || ' on refundd.' || t.relname
          from tables t
         cross join unnest(array['insert', 'update', 'delete', 'truncate', 'references', 'trigger']) with ordinality as a (table_right, nth)
         where has_table_privilege(t.oid, a.table_right)
           and not exists (select from unnest(:table_name::text[], :table_right::text[]) as w (table_name, table_right)
                            where w.table_name = t.relname and w.table_right = a.table_right)
        union all
        select format('update (%s) on refundd.refunds', a.attname)
          from tables t join pg_catalog.pg_attribute a on a.attrelid = t.oid
         where t.relname = 'refunds' and a.attname = any(:fixed_column::text[]) and not a.attisdropped
           and not has_table_privilege(t.oid, 'update') and has_column_privilege(t.oid, a.attnum, 'update')
        union all
        select 'execute on refundd.' || p.proname
          from pg_catalog.pg_proc p join ours on p.pronamespace = ours.oid
         where p.prosecdef and not p.proname = any(:function::text[])
           and has_function_privilege(p.oid, 'execute')) as excess
      from me
     where not (me.rolsuper or me.is_owner)
     union all
    select me.rolname::text, me.rolsuper, me.is_owner, '{}' from me where me.rolsuper or me.is_owner
