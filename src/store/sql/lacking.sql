-- lacking: the rights that a node needs and its role lacks.
-- :table_name, :table_right   one row for each right that is needed on a table
-- :later_column, :later_right  one row for each right on a column of `refunds` that a later migration added
-- The statement reads the catalogs, because naming an object in a schema without `usage` is an error by itself.
    with ours as (select oid, nspname from pg_catalog.pg_namespace where nspname = 'refundd')
    select current_user::text as role,
           (select pg_get_userbyid(c.relowner)::text from pg_catalog.pg_class c join ours on c.relnamespace = ours.oid
             where c.relname = 'migrations') as owner, array(
        select 'usage on schema refundd' from ours where not has_schema_privilege(oid, 'usage')
        union all
        select a.table_right || ' on refundd.' || a.table_name
          from unnest(:table_name::text[], :table_right::text[]) with ordinality as a (table_name, table_right, nth)
          join pg_catalog.pg_class c on c.relname = a.table_name and c.relnamespace = (select oid from ours)
         where not case a.table_right when 'delete' then has_table_privilege(c.oid, a.table_right)
                                      else has_any_column_privilege(c.oid, a.table_right) end
        union all
        select format('%s (%s) on refundd.refunds', a.later_right, a.later_column)
          from unnest(:later_column::text[], :later_right::text[]) as a (later_column, later_right)
         where exists (select from ours)
           and not has_column_privilege((select c.oid from pg_catalog.pg_class c join ours on c.relnamespace = ours.oid where c.relname = 'refunds'), a.later_column, a.later_right)
        union all
        select 'execute on refundd.' || p.proname
          from pg_catalog.pg_proc p
         where p.pronamespace = (select oid from ours) and p.proname = any(:function)
           and not has_function_privilege(p.oid, 'execute')) as lacking
