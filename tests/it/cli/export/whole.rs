//! An export has every send of its period, also one whose commit comes late; else it fails.

use std::process::{Child, Command, Stdio};

use sqlx::{Connection, Executor, PgConnection};

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, until};

/// Writes a send of a refund to the journal.
async fn write(connection: &mut PgConnection, refund: i64) {
    let line = format!(
        "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, code)
         values ({refund}, 'acme', 'send', 1, 1, 'a', now(), 'succeeded', 'succeeded')"
    );
    connection.execute(sqlx::AssertSqlSafe(line)).await.unwrap();
}

/// Starts an export up to now, and waits until it has looked at the journal's writers or is over.
async fn start(scratch: &Scratch, config: &std::path::Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refundd"));
    command.args(["export", "--channel", "acme", "--from", "1h", "--config"]).arg(config);
    let mut export = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The name is in two parts, so that the question does not find itself.
    let looks = "select count(*) from pg_stat_activity where datname = current_database() and query like '%feed' || '_reach%'";
    until("it looks who may write", async || {
        export.try_wait().unwrap().is_some() || scratch.number(looks).await > 0
    })
    .await;
    export
}

/// The refunds of the lines of an export that succeeds.
fn refunds(export: Child) -> Vec<String> {
    let output = export.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let mut reader = csv::Reader::from_reader(output.stdout.as_slice());
    reader.records().map(|row| row.unwrap()[3].to_owned()).collect()
}

#[tokio::test]
async fn a_send_whose_commit_hangs_at_the_end_of_the_period_is_in_the_export() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let mut settles = scratch.connect().await;
    settles.execute("begin").await.unwrap();
    write(&mut settles, 1).await;
    let export = start(&scratch, config.path()).await;
    settles.execute("commit").await.unwrap();
    assert_eq!(refunds(export), ["1"]);
}

/// As a settle that waits for a lock has not touched the journal yet.
#[tokio::test]
async fn a_send_that_is_dated_before_the_end_and_written_after_it_is_in_the_export() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let mut settles = scratch.connect().await;
    settles.execute("begin").await.unwrap();
    let export = start(&scratch, config.path()).await;
    write(&mut settles, 1).await;
    settles.execute("commit").await.unwrap();
    assert_eq!(refunds(export), ["1"]);
}

#[tokio::test]
async fn an_export_beside_a_transaction_that_stays_open_fails_and_says_why() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    // The role of nodes does not see when a transaction of the owner began.
    let mut owner = scratch.connect().await;
    owner.execute("begin").await.unwrap();
    write(&mut owner, 1).await;
    let refused = refundd(config.path(), &["export", "--channel", "acme", "--from", "2h", "--to", "1h"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(refused.stdout.is_empty(), "{}", text(&refused));
    assert!(text(&refused).contains("a transaction that is still open"), "{}", text(&refused));
}

#[tokio::test]
async fn a_transaction_that_began_after_the_period_keeps_no_export_back() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    node.execute("begin").await.unwrap();
    write(&mut node, 1).await;
    let past = refundd(config.path(), &["export", "--channel", "acme", "--from", "2h", "--to", "1h"]);
    assert!(past.status.success(), "{}", text(&past));
}
