//! Checks the roles of others in Postgres: producers that no binding reaches, a schema in which all may create, and roles that
//! two installations share.

use super::finding::Finding;
use crate::store::OtherRoles;

const ROLES: &str = "postgres.roles";

pub(super) fn findings(roles: &OtherRoles) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !roles.bound_to_none.is_empty() {
        findings.push(Finding::warning(
            ROLES,
            format!("bindings of producers name what is no role: {}", roles.bound_to_none.join(", ")),
            "a producer whose role was renamed is bound no more: it saves and reads refunds of all channels",
            "as the owner: `select refundd.bind_producer('NEW_NAME', '{CHANNEL}')` for a role that was renamed, then \
             `delete from refundd.producers where role = 'OLD_NAME'`",
        ));
    }
    if !roles.unbound.is_empty() {
        findings.push(Finding::warning(
            ROLES,
            format!(
                "members of refundd_producer are bound to no channel, and others are: {}",
                roles.unbound.join(", ")
            ),
            "they save and read refunds of all channels, also of the producers that are bound",
            "as the owner: `select refundd.bind_producer('NAME', '{CHANNEL}')`, or leave them if they are meant to use all",
        ));
    }
    if roles.create_in_public {
        findings.push(Finding::warning(
            ROLES,
            "every role may create objects in the schema `public`",
            "sessions of people and of producers may call functions and operators that another role made there; nodes do not",
            "as a superuser: `revoke create on schema public from public`",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            ROLES,
            "bindings of producers name roles, and not every role may create in `public`",
        ));
    }
    findings.push(elsewhere(&roles.elsewhere));
    findings
}

/// Of two installations on one server, each one's members of refundd's roles have the rights in the other one.
fn elsewhere(databases: &[String]) -> Finding {
    if databases.is_empty() {
        return Finding::ok(ROLES, "no role has refundd's rights here and in another database");
    }
    Finding::warning(
        ROLES,
        format!(
            "roles may connect here and to another database with refundd's rights: {}",
            databases.join(", ")
        ),
        "refundd_node, refundd_producer and refundd_reader belong to the whole server, and every role may connect to a new database: a \
         stolen password of one installation opens the other",
        "as the owner of each database: `grant connect on database NAME to ROLE` for all that use it, also for programs other than \
         refundd, and then `revoke connect on database NAME from public`; or leave it if both may use one another",
    )
}
