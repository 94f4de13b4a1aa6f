//! What the role of a node has to be allowed, where it is not the owner of the schema.
//!
//! Looked at once, at the start: most of it is needed only now and then, by the leading node, and would be missed late.
//! config/node-role.sql grants the same.

use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError};

/// Tables, and what is done to all or some of their columns.
const TABLES: &[(&str, &[&str])] = &[
    ("refunds", &["select", "insert", "update"]),
    ("addresses", &["select", "insert"]),
    ("attempts", &["select", "insert"]),
    ("permits", &["select", "insert"]),
    ("channels", &["select", "insert", "update"]),
    ("limits", &["select", "insert", "update"]),
    ("limit_rules", &["select", "insert"]),
    ("zone_days", &["select", "insert"]),
    ("nodes", &["select", "insert", "update", "delete"]),
    ("limit_shares", &["select", "insert", "update", "delete"]),
    ("ended", &["select", "insert", "update"]),
    ("ended_until", &["select", "update"]),
    ("clock_steps", &["select", "insert"]),
    ("clock", &["select", "insert", "update"]),
    ("migrations", &["select"]),
];

/// Columns of refunds that came later than the role: a right to the older ones says nothing about these.
const LATER: &[&str] = &["version", "sent_to"];

/// Functions that not everybody may call.
const FUNCTIONS: &[&str] = &[
    "counts",
    "count_ended",
    "turn_permits",
    "permits_are_kept_for",
    "turn_attempts",
    "spans",
    "attempts_since",
    "send_is_kept",
];

// By the catalogs, since a name in a schema that may not be used is an error of its own.
const LACKING: &str = "
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
           and not has_function_privilege(p.oid, 'execute')) as lacking";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("lacking", LACKING)];

impl Store {
    /// Whose rights these are, and which of those that a node needs are not among them.
    pub async fn lacking_rights(&self) -> Result<(String, Vec<String>), StoreError> {
        let pairs =
            || TABLES.iter().flat_map(|(name, rights)| rights.iter().map(move |right| (*name, *right)));
        let row = sqlx::query(LACKING)
            .bind(pairs().map(|(name, _)| name).collect::<Vec<_>>())
            .bind(pairs().map(|(_, right)| right).collect::<Vec<_>>())
            .bind(FUNCTIONS)
            .bind(LATER)
            .one(&self.db)
            .await
            .doing("look at the rights of this role")?;
        Ok((row.get("role"), row.get("lacking")))
    }
}
