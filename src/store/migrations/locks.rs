//! Explains why a migration failed, and names those that hold a lock for which it waited too long.
//!
//! Postgres knows who blocks whom only while somebody waits. After the wait, this module names all that hold a lock on a table of the
//! schema, or sqlx's own lock of migrations. It ends none of them.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Error, Row};

use super::alone;
use crate::store::{StoreError, refusal};

/// The code of a wait that was longer than `lock_timeout`.
const NO_LOCK: &str = "55P03";
/// Nodes hold such locks for milliseconds. A session that kept a migration waiting for seconds still holds its lock after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Those that hold such a lock. A session keeps an advisory lock over several transactions. A prepared transaction has no pid, and
/// holds the lock of its own number. sqlx's key is a checksum of the database's name times 1026731422. Every role may read these columns.
/// A worker of autovacuum alone has no role; most roles may not read its `backend_type`.
const HOLDERS: &str = "
    select distinct l.pid, coalesce(a.usename::text, '') as role, coalesce(a.application_name, '') as program,
           case when a.usesysid is null then a.pid end as worker,
           case when l.locktype = 'relation' then l.virtualtransaction end as transaction,
           coalesce(cardinality(pg_catalog.pg_blocking_pids(l.pid)) > 0, false) as waits,
           (select p.gid from pg_catalog.pg_locks own join pg_catalog.pg_prepared_xacts p on p.transaction = own.transactionid
             where l.pid is null and own.pid is null and own.virtualtransaction = l.virtualtransaction limit 1) as prepared
      from pg_catalog.pg_locks l
      left join pg_catalog.pg_class c on l.locktype = 'relation' and c.oid = l.relation
      left join pg_catalog.pg_stat_activity a on a.pid = l.pid
     where l.granted and l.pid is distinct from pg_catalog.pg_backend_pid()
       and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
       and ((c.relkind in ('r', 'p') and c.relnamespace = to_regnamespace('refundd'))
            or (l.locktype = 'advisory' and l.objsubid = 1
                and ((l.classid::bigint << 32) | l.objid::bigint) > 0
                and ((l.classid::bigint << 32) | l.objid::bigint) % 1026731422 = 0))";

/// The error of a migration. If a lock was not free in time, it names those that hold one now.
pub(super) async fn explained(connection: &mut PgConnection, error: MigrateError) -> StoreError {
    if let MigrateError::VersionMismatch(version) = error {
        return StoreError::MigrationIsAnother { version };
    }
    let source = refusal::readable_migration(error);
    if !is_no_lock(&source) {
        return StoreError::Migrate(source);
    }
    match holders(connection).await {
        Ok(holders) => StoreError::MigrationGotNoLock { why: why(&holders), source },
        Err(_) => StoreError::Migrate(source),
    }
}

fn is_no_lock(error: &MigrateError) -> bool {
    let (MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) = error else {
        return false;
    };
    error.as_database_error().is_some_and(|answer| answer.code().as_deref() == Some(NO_LOCK))
}

fn why(holders: &BTreeSet<String>) -> String {
    if holders.is_empty() {
        return "a lock was not free in time, and nobody holds it for longer any more; run `refundd migrate` again".to_owned();
    }
    let holders: Vec<&str> = holders.iter().map(String::as_str).collect();
    format!(
        "a lock was not free in time. These hold a lock on a table of refundd, or sqlx's lock of migrations: {}; let them end, or end \
         them as \"Who holds a lock\" in docs/runbook.md says, and run `refundd migrate` again",
        holders.join("; ")
    )
}

/// The names of those that hold a lock now and a moment later.
async fn holders(connection: &mut PgConnection) -> Result<BTreeSet<String>, Error> {
    let first = sqlx::query(HOLDERS).fetch_all(&mut *connection).await?;
    let first: HashSet<_> = first.iter().map(hold).collect();
    tokio::time::sleep(LOOK_AGAIN).await;
    let now = sqlx::query(HOLDERS).fetch_all(connection).await?;
    Ok(now.iter().filter(|row| first.contains(&hold(row))).map(name).collect())
}

/// The session, and its transaction if the lock ends with it.
fn hold(row: &PgRow) -> (Option<i32>, Option<String>) {
    (row.get("pid"), row.get("transaction"))
}

fn name(row: &PgRow) -> String {
    let waits = if row.get("waits") { ", which itself waits for another one" } else { "" };
    match (row.get::<Option<String>, _>("prepared"), row.get::<Option<i32>, _>("worker")) {
        (Some(prepared), _) => format!("the prepared transaction `{prepared}`"),
        (None, Some(pid)) => worker(pid),
        (None, None) => format!("{}{waits}", alone::name(row)),
    }
}

/// A worker of autovacuum. Postgres itself ends one that keeps others waiting, unless the worker prevents wraparound.
fn worker(pid: i32) -> String {
    format!(
        "the autovacuum worker with pid {pid} (do not end it: it ends by itself, and Postgres starts it again if it prevents wraparound)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_of_autovacuum_is_named_as_one_that_ends_by_itself() {
        let why = why(&BTreeSet::from([worker(451)]));
        assert!(
            why.contains("the autovacuum worker with pid 451 (do not end it: it ends by itself"),
            "{why}"
        );
    }
}
