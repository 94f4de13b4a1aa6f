//! Reads what `refundd doctor` says about the roles of others: bindings of producers, who may create objects, and roles that
//! two installations share.
//!
//! A binding names its role as text. Postgres does not change the text when the role is renamed.

use sqlx::Row;

use super::connections::Ask;
use super::{Doing, Store, StoreError};

/// What other roles of the database may do, or lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherRoles {
    /// Whether every role may create objects in the schema `public`, as on Postgres 14.
    pub create_in_public: bool,
    /// Names that `refundd.producers` binds to channels, and that no role has.
    pub bound_to_none: Vec<String>,
    /// Roles that log in and may use the rights of `refundd_producer`, and that no binding names while there are bindings.
    pub unbound: Vec<String>,
    /// Other databases of the server in which refundd's roles have rights, each with the members that may connect there and here:
    /// `staging (refundd_app, shop)`.
    pub elsewhere: Vec<String>,
}

// Roles belong to the whole server: those that may not connect to this database are no producers here. The owner of the
// schema may be a member because it made the role, and bindings do not bind it.
const OTHER_ROLES: &str = "
    select coalesce(has_schema_privilege('public'::name, to_regnamespace('public')::oid, 'create'), false) as create_in_public,
           array(select distinct p.role::text from refundd.producers p
                  where not exists (select from pg_roles r where r.rolname = p.role)
                  order by 1) as bound_to_none,
           array(select r.rolname::text
                   from pg_roles g
                   -- From 16 on, whoever made the group is a member that may only administer it.
                   join pg_roles r on case when current_setting('server_version_num')::int < 160000 then pg_has_role(r.oid, g.oid, 'member')
                                           else pg_has_role(r.oid, g.oid, 'usage') or pg_has_role(r.oid, g.oid, 'set') end
                  where g.rolname = 'refundd_producer' and r.rolcanlogin and not r.rolsuper
                    and has_database_privilege(r.oid, current_database(), 'connect')
                    and not pg_has_role(r.oid, (select n.nspowner from pg_namespace n where n.nspname = 'refundd'), 'member')
                    and exists (select from refundd.producers)
                    and not exists (select from refundd.producers p where pg_has_role(r.oid, to_regrole(quote_ident(p.role)), 'member'))
                  order by 1) as unbound,
           array(select format('%s (%s)', d.datname, string_agg(distinct r.rolname::text, ', '))
                   from pg_roles g
                   join pg_roles r on case when current_setting('server_version_num')::int < 160000 then pg_has_role(r.oid, g.oid, 'member')
                                           else pg_has_role(r.oid, g.oid, 'usage') or pg_has_role(r.oid, g.oid, 'set') end
                   -- No role sees the tables of another database. Of their grants the catalog of the whole server knows the role and the database.
                   join pg_database d on d.datname <> current_database() and d.datallowconn
                    and exists (select from pg_shdepend s
                                 where s.dbid = d.oid and s.refclassid = 'pg_authid'::regclass and s.refobjid = g.oid and s.deptype = 'a')
                  where g.rolname in ('refundd_node', 'refundd_producer', 'refundd_reader') and r.rolcanlogin and not r.rolsuper
                    and has_database_privilege(r.oid, current_database(), 'connect') and has_database_privilege(r.oid, d.oid, 'connect')
                    and not pg_has_role(r.oid, (select n.nspowner from pg_namespace n where n.nspname = 'refundd'), 'member')
                  group by d.datname
                  order by d.datname) as elsewhere";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("other_roles", OTHER_ROLES)];

impl Store {
    /// What other roles of the database may do, or lack.
    pub async fn other_roles(&self) -> Result<OtherRoles, StoreError> {
        let row = sqlx::query(OTHER_ROLES).one(&self.db.patient()).await;
        let row = row.doing("look at the roles of producers")?;
        Ok(OtherRoles {
            create_in_public: row.get("create_in_public"),
            bound_to_none: row.get("bound_to_none"),
            unbound: row.get("unbound"),
            elsewhere: row.get("elsewhere"),
        })
    }
}
