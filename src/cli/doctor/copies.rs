//! Checks what a copy of the database may lack: commits that no standby has confirmed, indexes in the order of this
//! host's C library, and sequences that go on after the newest row.

use super::finding::Finding;
use crate::logs::chain;
use crate::store::{CollationVersion, IdSequence, Replication, Store, StoreError};

const SETTINGS: &str = "postgres.settings";
const DATA: &str = "postgres.data";

pub(super) async fn findings(store: &Store) -> Vec<Finding> {
    let mut findings = match store.replication().await {
        Ok(replication) => standbys(&replication),
        Err(error) => vec![unread(SETTINGS, &error)],
    };
    findings.push(match store.collation_version().await {
        Ok(version) => collation(&version),
        Err(error) => unread(DATA, &error),
    });
    // The check of the rights says it where there is no schema yet.
    if !matches!(store.schema().await, Ok(schema) if schema.applied == 0) {
        match store.id_sequences().await {
            Ok(all) => findings.extend(sequences(&all)),
            Err(error) => findings.push(unread(DATA, &error)),
        }
    }
    findings
}

fn unread(check: &'static str, error: &StoreError) -> Finding {
    let why = "a copy of a database may lack commits, or have ids or indexes that do not fit its rows";
    let way_out = "correct what the message names, and run `refundd doctor` again";
    Finding::warning(check, format!("failed to {}", chain(error)), why, way_out)
}

/// Whether each standby that may be promoted has every commit. The check of the settings warns where no commit waits.
fn standbys(replication: &Replication) -> Vec<Finding> {
    let Replication { names, asynchronous, synchronous, hidden } = replication;
    if names.trim().is_empty() {
        return Vec::new();
    }
    let why = "after a fail-over to a standby that lacks the last commits, refunds are lost or go out twice";
    let warning = |found: String, way_out: &str| Finding::warning(SETTINGS, found, why, way_out);
    let mut findings = Vec::new();
    if *hidden > 0 {
        findings.push(warning(
            format!("not checked whether commits wait for each standby: this role sees nothing of {hidden} connections that replicate"),
            "grant pg_read_all_stats to this role, which may then read more and change nothing; or run `refundd doctor` as a role \
             that has it",
        ));
    }
    if !asynchronous.is_empty() {
        findings.push(warning(
            format!("no commit waits for {}", asynchronous.join(", ")),
            "name each standby in synchronous_standby_names that may be promoted, and never promote another one; a backup needs \
             nothing",
        ));
    }
    let (needed, listed) = quorum(names);
    // Several standbys may have one name.
    let all = listed.max(usize::try_from(*synchronous).unwrap_or(0));
    if needed > all && *hidden == 0 && !names.contains('*') {
        findings.push(Finding::broken(
            SETTINGS,
            format!("synchronous_standby_names = {names}: a commit waits for {needed} standbys, and it names {listed}"),
            "commits wait until so many standbys with these names are connected: nothing is saved or sent",
            "connect them; or lower the number, compare the standbys before a fail-over as docs/evidence.md says, and call \
             pg_reload_conf()",
        ));
    }
    if needed < all {
        findings.push(warning(
            format!("synchronous_standby_names = {names}: a commit waits for {needed} of {all} standbys"),
            &format!(
                "let each commit wait for all {all}; or compare at least {} of them before a fail-over, and promote the \
                 furthest, as docs/evidence.md says",
                all - needed + 1
            ),
        ));
    }
    findings
}

/// How many standbys a commit waits for, and how many the setting lists: 1 of 2 for `ANY 1 (one, two)`.
fn quorum(names: &str) -> (usize, usize) {
    let (head, list) = match names.split_once('(') {
        // A name in quotes may hold a bracket.
        Some((head, list)) if !head.contains(['"', ',']) => (head, list),
        _ => ("", names),
    };
    // A list without a number stands for its first standby.
    let needed = head.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(1);
    let outside_quotes = list.split('"').step_by(2);
    (needed, 1 + outside_quotes.map(|part| part.matches(',').count()).sum::<usize>())
}

fn collation(version: &CollationVersion) -> Finding {
    let CollationVersion { database, collation, recorded, actual } = version;
    let Some(recorded) = recorded else {
        let is_fixed = ["C", "POSIX"].contains(&collation.as_str()) || collation.starts_with("C.");
        return Finding::ok(
            DATA,
            if is_fixed {
                format!("the collation `{collation}` sorts texts in one way on every host")
            } else {
                format!(
                    "Postgres has no recorded version of the collation `{collation}`, so a change of the C library is not seen"
                )
            },
        );
    };
    if actual.as_ref() == Some(recorded) {
        return Finding::ok(DATA, format!("the collation `{collation}` has its recorded version {recorded}"));
    }
    let actual = actual.as_deref().unwrap_or("none");
    Finding::broken(
        DATA,
        format!(
            "the collation `{collation}` has the version {actual} on this host, and {recorded} is recorded"
        ),
        "indexes of texts may be in the wrong order: a repeated save does not find its refund, and the bank pays it twice",
        &format!(
            "stop producers and nodes; as a superuser `reindex database \"{database}\"`, and when that succeeded \
             `alter database \"{database}\" refresh collation version`"
        ),
    )
}

fn sequences(all: &[IdSequence]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for IdSequence { name, last, highest } in all {
        if last.is_some_and(|last| last < *highest) {
            findings.push(Finding::broken(
                DATA,
                format!("the sequence {name} is behind: its table has the id {highest}"),
                "new rows get ids that older rows have: saves fail, and an insert with `on conflict do nothing` loses its refund \
                 without an error",
                &format!(
                    "stop producers and nodes; as the owner of the schema `select setval('{name}', {highest})`; a logical copy \
                     carries no sequences"
                ),
            ));
        }
    }
    let hidden: Vec<&str> = all
        .iter()
        .filter(|sequence| sequence.last.is_none())
        .map(|sequence| sequence.name.as_str())
        .collect();
    if !hidden.is_empty() {
        findings.push(Finding::warning(
            DATA,
            format!("not checked whether sequences are behind: this role may not read {}", hidden.join(", ")),
            "in a logical copy of a database, sequences give ids that rows have already",
            "as the owner of the schema, run config/node-role.sql (/usr/share/refundd/node-role.sql) again",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(DATA, "no sequence is behind the ids of its table"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Severity;

    #[test]
    fn a_commit_that_does_not_wait_for_each_listed_standby_is_found_with_the_arithmetic() {
        let with = |names: &str, synchronous: i64| {
            standbys(&Replication {
                names: names.to_owned(),
                asynchronous: Vec::new(),
                synchronous,
                hidden: 0,
            })
        };
        for (names, synchronous) in [
            ("", 0),
            ("one", 1),
            ("*", 1),
            ("2 (one, two)", 2),
            ("ANY 2 (one, two)", 1),
            ("first 3(one,two,three)", 3),
            ("\"one, (two)\"", 1),
        ] {
            let found = with(names, synchronous);
            assert!(found.is_empty(), "{names}: {found:?}");
        }
        for (names, synchronous, found, compare) in [
            ("ANY 1 (one, two)", 2, "waits for 1 of 2", "at least 2 of them"),
            ("one, two", 1, "waits for 1 of 2", "at least 2 of them"),
            ("FIRST 2 (one, \"two, too\", three)", 3, "waits for 2 of 3", "at least 2 of them"),
            ("any 1 (one, two, three)", 0, "waits for 1 of 3", "at least 3 of them"),
            ("*", 2, "waits for 1 of 2", "at least 2 of them"),
        ] {
            let findings = with(names, synchronous);
            assert_eq!((findings.len(), findings[0].severity), (1, Severity::Warning), "{names}");
            assert!(findings[0].found.contains(found), "{findings:?}");
            assert!(findings[0].way_out.as_deref().unwrap().contains(compare), "{findings:?}");
        }
    }

    #[test]
    fn standbys_that_no_commit_waits_for_are_named_and_hidden_ones_are_called_unchecked() {
        let replication = Replication {
            names: "one".to_owned(),
            asynchronous: vec!["two".to_owned(), "three".to_owned()],
            synchronous: 1,
            hidden: 0,
        };
        let found = standbys(&replication);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].found, "no commit waits for two, three");
        let hidden =
            Replication { asynchronous: Vec::new(), synchronous: 0, hidden: 2, ..replication.clone() };
        let found = standbys(&hidden);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Warning), "{found:?}");
        assert!(found[0].found.contains("not checked"), "{found:?}");
        let none = Replication { names: String::new(), ..replication };
        assert!(standbys(&none).is_empty(), "the check of the settings warns of this");
    }

    #[test]
    fn a_collation_of_another_version_is_broken_and_one_without_a_version_is_not() {
        let with = |collation: &str, recorded: Option<&str>, actual: Option<&str>| {
            super::collation(&CollationVersion {
                database: "payments".to_owned(),
                collation: collation.to_owned(),
                recorded: recorded.map(str::to_owned),
                actual: actual.map(str::to_owned),
            })
        };
        let moved = with("en_US.UTF-8", Some("2.31"), Some("2.36"));
        assert_eq!(moved.severity, Severity::Broken);
        assert!(moved.found.contains("2.36 on this host, and 2.31"), "{moved:?}");
        assert!(moved.way_out.unwrap().contains("reindex database \"payments\""));
        assert_eq!(with("en_US.UTF-8", Some("2.31"), None).severity, Severity::Broken);
        for (collation, version, words) in [
            ("en_US.UTF-8", Some("2.31"), "recorded version 2.31"),
            ("de_DE", None, "not seen"),
            ("C", None, "every host"),
        ] {
            let found = with(collation, version, version);
            assert_eq!(found.severity, Severity::Ok);
            assert!(found.found.contains(words), "{found:?}");
        }
    }
}
