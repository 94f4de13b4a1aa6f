//! Checks Postgres: the way to it, its settings, the schema, and the rights of the node's role.

mod locks;
mod tls;

use std::time::Duration;

use jiff::Timestamp;

use super::clocks::ClockSample;
use super::copies;
use super::finding::Finding;
use super::roles;
use super::upkeep;
use crate::config::Config;
use crate::daemon::open_store;
use crate::logs::chain;
use crate::store::{Checkup, Excess, SchemaFault, Store, StoreError};

const REACH: &str = "postgres.reach";
const SETTINGS: &str = "postgres.settings";
const SCHEMA: &str = "postgres.schema";
const RIGHTS: &str = "postgres.rights";

/// What was found, and Postgres's clock if it could be read.
pub(super) async fn findings(
    config: &Config,
    soon: Duration,
    now: Timestamp,
) -> (Vec<Finding>, Vec<ClockSample>) {
    let store = match open_store(&config.postgres, 2) {
        Ok(store) => store,
        Err(error) => return (vec![unreachable(&chain(error.as_ref()).to_string())], Vec::new()),
    };
    let (mut findings, mut clock) = (Vec::new(), Vec::new());
    let (tls, reached) = tokio::join!(tls::findings(config, &store, soon, now), store.reach());
    findings.extend(tls);
    if let Err(error) = reached {
        findings.push(unreachable(&format!("failed to {}", chain(&error))));
        return (findings, clock);
    }
    match store.takes_no_writes().await {
        Ok(None) => findings.push(Finding::ok(REACH, "Postgres answers and takes writes")),
        Ok(Some(why)) => findings.push(unreachable(why)),
        Err(error) => findings.push(unreachable(&format!("failed to {}", chain(&error)))),
    }
    // On the connection that is open now: the reading of the clock has no time for opening one in it.
    match store.checkup().await {
        Ok(checkup) => {
            let (us, at) = checkup.clock;
            clock.push(ClockSample { name: "Postgres".to_owned(), us, at });
            findings.extend(settings(&checkup));
            let nodes = living_nodes(&store).await;
            let connections = nodes.saturating_mul(i64::from(config.postgres.connections));
            findings.push(enough_connections(config, nodes, connections, &checkup));
            findings.extend(locks::finding(config, connections, &checkup));
        }
        Err(error) => findings.push(unread(SETTINGS, &error)),
    }
    let (rights, schema, copies, upkeep) =
        tokio::join!(rights(&store), schema(&store), copies::findings(&store), upkeep::findings(&store));
    findings.extend(rights);
    findings.push(schema);
    findings.extend(copies);
    findings.extend(upkeep);
    (findings, clock)
}

fn unreachable(why: &str) -> Finding {
    Finding::broken(
        REACH,
        format!("Postgres cannot be used: {why}"),
        "nothing is saved, claimed or sent: the row in Postgres is the truth",
        "start the server, or correct `[postgres] url` and what its message names",
    )
}

fn unread(check: &'static str, error: &StoreError) -> Finding {
    let found = format!("failed to {}", chain(error));
    Finding::broken(
        check,
        found,
        "the check could not be made",
        "correct what the message names, and run `refundd doctor` again",
    )
}

/// A setting that breaks a promise: its name, its bad value, the promise, and the way out.
const BREAKING: [(&str, &str, &str, &str); 3] = [
    (
        "fsync",
        "off",
        "a crash of its machine loses or damages refunds that were saved, and forgets sends: refunds are lost or go out twice",
        "`alter system set fsync = on`, then `select pg_reload_conf()`",
    ),
    (
        "full_page_writes",
        "off",
        "a crash of its machine may leave half-written pages: refunds are lost or go out twice",
        "`alter system set full_page_writes = on`, then `select pg_reload_conf()`",
    ),
    (
        "zero_damaged_pages",
        "on",
        "Postgres replaces a damaged page by an empty one, and its refunds are gone without an error",
        "`alter system reset zero_damaged_pages`, `alter role … reset zero_damaged_pages`, then `select pg_reload_conf()`",
    ),
];

fn settings(checkup: &Checkup) -> Vec<Finding> {
    let value = |name: &str| checkup.settings.get(name).map_or("", String::as_str);
    let mut findings = Vec::new();
    for (name, bad, why, way_out) in BREAKING {
        if value(name) == bad {
            findings.push(Finding::broken(SETTINGS, format!("{name} = {bad}"), why, way_out));
        }
    }
    if value("autovacuum") == "off" {
        findings.push(Finding::warning(
            SETTINGS,
            "autovacuum = off",
            "tables and indexes of refunds and permits grow without end, claims become slow, and the server stops at last",
            "`alter system set autovacuum = on`, then `select pg_reload_conf()`",
        ));
    }
    if checkup.followers > 0 && value("synchronous_standby_names").is_empty() {
        findings.push(Finding::warning(
            SETTINGS,
            format!("{} connections replicate, and synchronous_standby_names is empty", checkup.followers),
            "after a fail-over to a standby that lacks the last commits, refunds are lost or go out twice",
            "set synchronous_standby_names to the standby, or never fail over to it; a backup needs nothing",
        ));
    }
    if !checkup.unlogged.is_empty() {
        findings.push(Finding::broken(
            SETTINGS,
            format!("unlogged tables: {}", checkup.unlogged.join(", ")),
            "a crash of the server empties them",
            "as the owner: `alter table refundd.NAME set logged`",
        ));
    }
    if !checkup.sleeping_triggers.is_empty() {
        findings.push(Finding::broken(
            SETTINGS,
            format!("triggers that are switched off: {}", checkup.sleeping_triggers.join(", ")),
            "they refuse illegal moves, other amounts and lost evidence, and write the events",
            "as the owner: `alter table refundd.NAME enable trigger all`",
        ));
    }
    if findings.is_empty() {
        let shown = ["fsync", "full_page_writes"].map(|name| format!("{name} = {}", value(name)));
        findings.push(Finding::ok(SETTINGS, format!("Postgres {}: {}", checkup.version, shown.join(", "))));
    }
    findings
}

/// How many nodes live; one where none does.
async fn living_nodes(store: &Store) -> i64 {
    let nodes = store.nodes().await.unwrap_or_default().iter().filter(|node| node.lives).count().max(1);
    i64::try_from(nodes).unwrap_or(i64::MAX)
}

/// Whether all nodes get their connections.
fn enough_connections(config: &Config, nodes: i64, needed: i64, checkup: &Checkup) -> Finding {
    let most = checkup.most_connections;
    let found = format!(
        "{needed} connections are needed (nodes: {nodes}, `[postgres] connections` = {}), and this role may have {most}",
        config.postgres.connections
    );
    if needed > most {
        let why = "when none is left, saves, claims and outcomes wait, and permits lapse";
        let way_out = "raise max_connections or the connection limit of the role or the database, or lower `[postgres] connections`";
        return Finding::warning(SETTINGS, found, why, way_out);
    }
    Finding::ok(SETTINGS, found)
}

async fn schema(store: &Store) -> Finding {
    match (store.fault_of_schema().await, store.schema().await) {
        (Ok(None), Ok(schema)) if schema.applied > schema.known => Finding::warning(
            SCHEMA,
            format!("the schema is at version {}, and this refundd knows {}", schema.applied, schema.known),
            "a newer refundd migrated it; this one runs on it, except after a migration that CHANGELOG.md names",
            "install the newer version here too, or keep this one on purpose",
        ),
        (Ok(None), Ok(schema)) => Finding::ok(SCHEMA, format!("the schema is at version {}", schema.applied)),
        (Ok(Some(fault)), _) => of_fault(SCHEMA, fault),
        (Err(error), _) | (_, Err(error)) => unread(SCHEMA, &error),
    }
}

fn of_fault(check: &'static str, SchemaFault { found, way_out }: SchemaFault) -> Finding {
    Finding::broken(check, found, "a node does not start", &way_out)
}

/// Rights that a node lacks, rights that it should not have, and what the roles of others may do.
async fn rights(store: &Store) -> Vec<Finding> {
    let schema = store.schema().await;
    let is_newer = matches!(&schema, Ok(schema) if schema.applied > schema.known);
    if matches!(schema, Ok(schema) if schema.applied == 0) {
        return vec![Finding::warning(
            RIGHTS,
            "not checked, because the database has no schema yet",
            "the rights are those on its tables and functions",
            "run `refundd migrate` and config/node-role.sql (/usr/share/refundd/node-role.sql) as the owner, and then `refundd doctor` \
             again; the first run of the script needs a superuser, or an owner with createrole",
        )];
    }
    let lacking = match store.fault_of_rights().await {
        Ok(None) => None,
        Ok(Some(fault)) => Some(of_fault(RIGHTS, fault)),
        Err(error) => Some(unread(RIGHTS, &error)),
    };
    let excess = match store.excess_rights().await {
        Ok(excess) => too_many(&excess, is_newer),
        Err(error) => Some(unread(RIGHTS, &error)),
    };
    let lacks_some = lacking.is_some();
    let mut findings: Vec<Finding> = lacking.into_iter().chain(excess).collect();
    if findings.is_empty() {
        findings.push(Finding::ok(RIGHTS, "the role has the rights that a node needs, and no others"));
    }
    if !lacks_some {
        let others = store.other_roles().await.map(|others| roles::findings(&others));
        findings.extend(others.unwrap_or_else(|error| vec![unread(RIGHTS, &error)]));
    }
    findings
}

/// `is_newer` says that a newer refundd migrated the schema: its nodes may need rights that this one does not know.
fn too_many(excess: &Excess, is_newer: bool) -> Option<Finding> {
    let role = &excess.role;
    let why =
        "a stolen password of a node changes or erases evidence: the journal, the ledger and the events";
    let script = if is_newer {
        "the node-role.sql of the refundd that migrated last, not this version's node-role.sql ("
    } else {
        "config/node-role.sql (/usr/share/refundd/node-role.sql; "
    };
    let way_out = format!(
        "as the owner of the schema, run {script}the first time as a superuser, or an owner with createrole); let nodes log in as a role \
         of their own with `grant refundd_node to …` and no other rights than those, not as `{role}`"
    );
    if excess.is_superuser {
        let found = format!("the role `{role}` is a superuser");
        return Some(Finding::broken(RIGHTS, found, why, &way_out));
    }
    if excess.is_owner {
        let found = format!("the role `{role}` owns the schema, or is a member of its owner");
        return Some(Finding::warning(RIGHTS, found, why, &way_out));
    }
    let rights = excess.rights.join(", ");
    let found = format!("the role `{role}` has rights that no node of this version needs: {rights}");
    (!excess.rights.is_empty()).then(|| Finding::warning(RIGHTS, found, why, &way_out))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use super::*;
    use crate::cli::doctor::finding::Severity;

    #[test]
    fn a_standby_that_no_commit_waits_for_is_found_and_a_synchronous_one_is_well() {
        let with = |names: &str| {
            let settings =
                [("fsync", "on"), ("full_page_writes", "on"), ("synchronous_standby_names", names)];
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
            settings_of(BTreeMap::from(settings), 1)
        };
        let found = with("");
        assert_eq!((found.len(), found[0].severity), (1, Severity::Warning), "{found:?}");
        assert!(found[0].found.contains("synchronous_standby_names is empty"), "{found:?}");
        assert_eq!(with("*")[0].severity, Severity::Ok);
    }

    fn settings_of(settings: BTreeMap<String, String>, followers: i64) -> Vec<Finding> {
        super::settings(&Checkup {
            clock: (0, Instant::now()),
            version: "17.0".to_owned(),
            settings,
            unlogged: Vec::new(),
            sleeping_triggers: Vec::new(),
            followers,
            most_connections: 100,
            permit_tables: 0,
        })
    }
}
