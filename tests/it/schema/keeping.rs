//! Commits wait for the disk, whatever the session says that writes by SQL.

use sqlx::{Connection, Executor, PgConnection};

use crate::harness::Scratch;

/// What a session says, and what its transaction then commits with.
const KEPT: [(&str, &str); 4] =
    [("off", "on"), ("local", "on"), ("remote_write", "remote_write"), ("remote_apply", "remote_apply")];

/// The setting that a transaction would commit with after this statement, if its session says `setting`.
async fn commits_with(connection: &mut PgConnection, setting: &str, statement: &str) -> String {
    let mut writes = connection.begin().await.unwrap();
    let say = format!("set local synchronous_commit = {setting}");
    for step in [say.as_str(), statement] {
        writes.execute(sqlx::AssertSqlSafe(step)).await.unwrap();
    }
    let said = sqlx::query_scalar("show synchronous_commit").fetch_one(&mut *writes).await.unwrap();
    writes.rollback().await.unwrap();
    said
}

#[tokio::test]
async fn a_save_waits_for_the_disk_whatever_the_producers_session_says() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let mut producer = scratch.connect().await;
    for (weaker, kept) in KEPT {
        let save = "select refundd.enqueue('R-1', 'acme', 'P', 1, 'EUR')";
        assert_eq!(commits_with(&mut producer, weaker, save).await, kept, "{weaker}");
    }
}

#[tokio::test]
async fn what_a_person_does_by_sql_waits_for_the_disk_whatever_the_session_says() {
    let scratch = Scratch::with_refunds(2).await;
    scratch.publish("globex").await;
    scratch.to_review("id = 2").await;
    let seen = scratch.number("select version::bigint from refundd.refunds where id = 2").await;
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    for (weaker, kept) in KEPT {
        for statement in [
            "select refundd.cancel('{1}', null, 'x', 'ann', null, true)",
            "select refundd.move('{1}', 'acme', 'globex', 'x', 'ann')",
            &format!("select refundd.decide(2, 'failed', 'x', 'ann', {seen}, false)"),
            &format!("select refundd.propose(2, 'ready', 'x', 'ann', {seen}, true)"),
            "update refundd.channels set paused_at = now(), pause_reason = 'x', paused_by = 'ann' where channel = 'acme'",
        ] {
            assert_eq!(commits_with(&mut node, weaker, statement).await, kept, "{weaker}: {statement}");
        }
    }
}
