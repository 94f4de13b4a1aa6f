//! Checks what keeps Postgres from cleaning up: old snapshots and open transactions. And rows that stand in no table of a
//! day or a month.

use std::cmp::Reverse;
use std::time::Duration;

use super::finding::Finding;
use crate::cli::status::span;
use crate::logs::chain;
use crate::refund::text::counted;
use crate::store::{HolderKind, OtherSpans, SnapshotHolder, Store, StoreError};

const SNAPSHOTS: &str = "postgres.snapshots";
const PARTITIONS: &str = "postgres.partitions";

/// Older snapshots are found.
const OLD: Duration = Duration::from_mins(30);
/// The same where no time is known. Half an hour of a busy day has about so many transactions.
const MANY: i64 = 50_000;
/// More findings of one cause help nobody.
const NAMED: usize = 5;

const WHY: &str = "Postgres cleans up nothing newer: dead entries gather at the front of the indexes that nodes read, each feeding \
                   becomes slower, and at last it times out";

const WHY_OF_SLOT: &str = "Postgres keeps its log for a slot that nobody reads, until the disk is full or `max_slot_wal_keep_size` is reached. And it cleans up nothing newer: behind a standby in \
                           every table, so that each feeding becomes slower; for a logical slot in its catalog alone";

pub(super) async fn findings(store: &Store) -> Vec<Finding> {
    let mut findings = match store.snapshot_holders().await {
        Ok(holders) => snapshots(&holders),
        Err(error) => vec![unread(SNAPSHOTS, &error)],
    };
    // The check of the rights says it where there is no schema yet.
    if !matches!(store.schema().await, Ok(schema) if schema.applied == 0) {
        match store.other_spans().await {
            Ok(spans) => findings.extend(partitions(spans)),
            Err(error) => findings.push(unread(PARTITIONS, &error)),
        }
    }
    findings
}

fn unread(check: &'static str, error: &StoreError) -> Finding {
    let way_out = "correct what the message names, and run `refundd doctor` again";
    Finding::warning(check, format!("failed to {}", chain(error)), "the check could not be made", way_out)
}

fn snapshots(holders: &[SnapshotHolder]) -> Vec<Finding> {
    let is_old = |one: &&SnapshotHolder| one.age.map_or(one.transactions >= MANY, |age| age >= OLD);
    let (hidden, seen): (Vec<&SnapshotHolder>, Vec<&SnapshotHolder>) =
        holders.iter().partition(|one| one.is_hidden);
    let mut old: Vec<&SnapshotHolder> = seen.into_iter().filter(is_old).take(NAMED).collect();
    // While an old transaction is open, later snapshots look as old by their transactions. So name the oldest one alone, the first of
    // equals, and none that one with a known time explains.
    let oldest = hidden.iter().copied().filter(is_old).min_by_key(|one| Reverse(one.transactions));
    let is_explained = |hidden: &&SnapshotHolder| {
        old.iter().any(|known| known.kind != HolderKind::Slot && known.transactions >= hidden.transactions)
    };
    let unexplained = oldest.filter(|hidden| !is_explained(hidden));
    old.extend(unexplained);
    if !old.is_empty() {
        return old.into_iter().map(holds).collect();
    }
    let minutes = OLD.as_secs() / 60;
    let mut found = format!("no snapshot and no open transaction is older than {minutes} minutes");
    if !hidden.is_empty() {
        found = format!(
            "{found}; of {} this role sees no time without pg_read_all_stats, and fewer than {MANY} transactions were begun since",
            counted(hidden.len() as u64, "session")
        );
    }
    vec![Finding::ok(SNAPSHOTS, found)]
}

fn holds(one: &SnapshotHolder) -> Finding {
    let SnapshotHolder { kind, name, whose, age, transactions, is_hidden } = one;
    let since = match age {
        Some(age) => format!("for {}", span(*age)),
        None if *is_hidden => format!(
            "and {transactions} transactions were begun since; without pg_read_all_stats this role does not see since when"
        ),
        None => format!("and {transactions} transactions were begun since"),
    };
    let quoted = name.replace('\'', "''");
    let (found, way_out) = match kind {
        HolderKind::Session => (
            format!("the session with pid {name} ({whose}) holds a snapshot or an open transaction {since}"),
            format!(
                "let it end; or end it, as a superuser or a member of pg_signal_backend: `select pg_terminate_backend({name})`. Dump \
                 and report from a standby without hot_standby_feedback"
            ),
        ),
        HolderKind::Slot => (
            format!("the replication slot {name} ({whose}) holds a snapshot {since}"),
            format!(
                "start what reads the slot, or end its long queries; if nobody needs the slot: `select \
                 pg_drop_replication_slot('{quoted}')`"
            ),
        ),
        HolderKind::Prepared => (
            format!("the prepared transaction {name} ({whose}) is open {since}"),
            format!(
                "as its owner or a superuser, end it as its coordinator decided: `commit prepared '{quoted}'` or `rollback prepared \
                 '{quoted}'`"
            ),
        ),
    };
    let why = if *kind == HolderKind::Slot { WHY_OF_SLOT } else { WHY };
    Finding::warning(SNAPSHOTS, found, why, &way_out)
}

fn partitions(spans: OtherSpans) -> Vec<Finding> {
    let count = |rows: i64| if rows > 10_000 { "more than 10000".to_owned() } else { rows.to_string() };
    let mut findings = Vec::new();
    if spans.permits > 0 {
        findings.push(Finding::warning(
            PARTITIONS,
            format!("rows in refundd.permits_of_other_days: {}", count(spans.permits)),
            "no table was made for their day in time: a long reader kept the table, or Postgres's clock was ahead. Such a day is \
             forgotten row by row",
            "leave them: nodes delete them when they are as old as `[recovery] keep_permits`. Let a node run, and end what \
             `postgres.snapshots` names, so that the next days get tables",
        ));
    }
    if spans.attempts > 0 {
        findings.push(Finding::warning(
            PARTITIONS,
            format!("rows in refundd.attempts_of_other_months: {}", count(spans.attempts)),
            "no table was made for their month in time, and `[recovery] keep_attempts` never forgets them. Each new month reads all of \
             them, while writers of the journal wait",
            "leave them if they are few: no evidence is lost. Let a node run, and end what `postgres.snapshots` names, so that the \
             next months get tables",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            PARTITIONS,
            "no row of the ledger or the journal lacks a table of its day or month",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Severity;

    fn holder(kind: HolderKind, name: &str, minutes: Option<u64>, transactions: i64) -> SnapshotHolder {
        SnapshotHolder {
            kind,
            name: name.to_owned(),
            whose: "bi, psql".to_owned(),
            age: minutes.map(Duration::from_mins),
            transactions,
            is_hidden: false,
        }
    }

    #[test]
    fn each_old_holder_is_named_with_its_age_and_its_own_way_out() {
        for (kind, name, words) in [
            (HolderKind::Session, "4711", "pg_terminate_backend(4711)"),
            (HolderKind::Slot, "gone", "pg_drop_replication_slot('gone')"),
            (HolderKind::Prepared, "it's", "rollback prepared 'it''s'"),
        ] {
            let young = [holder(kind, name, Some(29), 10 * MANY), holder(kind, name, None, MANY - 1)];
            assert_eq!(snapshots(&young)[0].severity, Severity::Ok, "{kind:?}");
            for old in [holder(kind, name, Some(30), 1), holder(kind, name, None, MANY)] {
                let found = snapshots(&[young[0].clone(), old]);
                assert_eq!((found.len(), found[0].severity), (1, Severity::Warning), "{found:?}");
                assert!(found[0].found.contains(name) && found[0].found.contains("bi, psql"), "{found:?}");
                assert!(found[0].way_out.as_deref().unwrap().contains(words), "{found:?}");
            }
        }
    }

    #[test]
    fn of_sessions_without_a_time_the_oldest_is_named_and_the_others_may_only_have_come_after_it() {
        let hidden = |name: &str, transactions| SnapshotHolder {
            is_hidden: true,
            ..holder(HolderKind::Session, name, None, transactions)
        };
        let found = snapshots(&[hidden("1", MANY), hidden("2", MANY + 7), hidden("3", 5)]);
        assert_eq!(found.len(), 1, "{found:?}");
        for words in ["pid 2 ", "50007 transactions", "does not see since when"] {
            assert!(found[0].found.contains(words), "{words}: {found:?}");
        }
        // What holds a transaction open comes first of equals, and may be one whose time is known.
        let found = snapshots(&[hidden("4", MANY), hidden("5", MANY)]);
        assert!(found.len() == 1 && found[0].found.contains("pid 4 "), "{found:?}");
        let found = snapshots(&[holder(HolderKind::Prepared, "it", Some(30), MANY), hidden("5", MANY)]);
        assert!(found.len() == 1 && found[0].found.contains("prepared transaction it"), "{found:?}");
        let found = snapshots(&[holder(HolderKind::Slot, "s", None, 2 * MANY), hidden("5", MANY)]);
        assert_eq!(found.len(), 2, "a slot makes no session look old: {found:?}");
        let found = snapshots(&[hidden("3", 5)]);
        assert_eq!(found[0].severity, Severity::Ok);
        assert!(found[0].found.contains("of 1 session this role sees no time"), "{found:?}");
    }

    #[test]
    fn rows_of_other_days_and_months_are_counted_apart() {
        let with = |permits, attempts| partitions(OtherSpans { permits, attempts });
        assert_eq!(with(0, 0)[0].severity, Severity::Ok);
        assert!(with(7, 0)[0].found.contains("permits_of_other_days: 7"));
        assert!(with(0, 10_001)[0].found.contains("attempts_of_other_months: more than 10000"));
        assert_eq!(with(1, 1).len(), 2);
    }
}
