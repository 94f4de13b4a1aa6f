-- lacking: the rights that a node needs and its role lacks.
-- $1 and $2 tables, and a right on each  $3 functions  $4 columns of refunds that later migrations added
-- The statement reads the catalogs, because naming an object in a schema without `usage` is an error by itself.
    with ours as (select oid, nspname from pg_catalog.pg_namespace where nspname = 'refundd')
    select current_user::text as role, array(
        select 'usage on schema refundd' from ours where not has_schema_privilege(oid, 'usage')
        union all
        select a.what || ' on refundd.' || a.name
          from unnest($1::text[], $2::text[]) with ordinality as a (name, what, nth)
          join pg_catalog.pg_class c on c.relname = a.name and c.relnamespace = (select oid from ours)
         where not case a.what when 'delete' then has_table_privilege(c.oid, a.what)
                               else has_any_column_privilege(c.oid, a.what) end
        union all
        select format('update (%s) on refundd.refunds', a.name)
          from unnest($4::text[]) as a (name)
         where exists (select from ours)
           and not has_column_privilege((select c.oid from pg_catalog.pg_class c join ours on c.relnamespace = ours.oid where c.relname = 'refunds'), a.name, 'update')
        union all
        select 'execute on refundd.' || p.proname
          from pg_catalog.pg_proc p
         where p.pronamespace = (select oid from ours) and p.proname = any($3)
           and not has_function_privilege(p.oid, 'execute')) as lacking
