//! Reads what `refundd doctor` says about the roles of others: bindings of producers, and who may create objects.
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
                  order by 1) as unbound";

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
        })
    }
}
