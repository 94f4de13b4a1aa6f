//! Compares what claims lock with Postgres's table of locks.

use crate::cli::doctor::finding::Finding;
use crate::config::Config;
use crate::store::Checkup;

const LOCKS: &str = "postgres.locks";

/// A claim that counts spans locks the table and the index of each day of permits.
const LOCKS_OF_A_TABLE: i64 = 2;

/// `None` where no claim counts spans, or where there is no schema yet.
pub(super) fn finding(config: &Config, connections: i64, checkup: &Checkup) -> Option<Finding> {
    let tables = checkup.permit_tables;
    if tables == 0 || !config.counts_spans() {
        return None;
    }
    let setting = |name: &str| checkup.settings.get(name)?.parse::<i64>().ok();
    let transactions = setting("max_connections")? + setting("max_prepared_transactions")?;
    let room = setting("max_locks_per_transaction")?.saturating_mul(transactions);
    let needed = connections.saturating_mul(LOCKS_OF_A_TABLE * tables);
    let found = format!(
        "claims may hold {needed} locks at once (connections of nodes: {connections}, tables of permits: {tables}, locks of each: \
         {LOCKS_OF_A_TABLE}), and Postgres has room for about {room}"
    );
    if needed <= room {
        return Some(Finding::ok(LOCKS, found));
    }
    let why = "statements of any program on this server then fail with `out of shared memory`, and nodes take that for an outage of \
               Postgres: nothing is claimed or sent";
    let way_out = format!(
        "keep fewer days: lower `[recovery] keep_permits`, and what refundd.retention asks for (docs/evidence.md says what to save \
         before). Or set max_locks_per_transaction to {} or more, on standbys first, and restart Postgres",
        needed / transactions.max(1) + 1
    );
    Some(Finding::warning(LOCKS, found, why, &way_out))
}
