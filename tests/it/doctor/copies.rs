//! Findings about what a copy of the database may lack: commits, the order of its indexes, and sequences.

use playground::{PostgresOptions, PrivatePostgres};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::{config_of, examine, is_found, is_well};
use crate::dispatch::UNLIMITED;
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, until};

#[tokio::test(flavor = "multi_thread")]
async fn standbys_that_may_lack_commits_are_found_and_a_role_that_cannot_see_them_learns_so() {
    let postgres = PrivatePostgres::start_with(&PostgresOptions::for_tests()).await.unwrap();
    let url = postgres.url("postgres");
    let mut database = PgConnection::connect(&url).await.unwrap();
    database.execute("create role looker login").await.unwrap();
    let standby = postgres.add_standby().await.unwrap();
    let name: String = sqlx::query_scalar("select application_name from pg_stat_replication")
        .fetch_one(&mut database)
        .await
        .unwrap();
    let (report, _) = examine(&config_of(&url));
    for words in ["no commit waits", "a commit waits for", "not checked whether commits wait"] {
        assert!(!report.to_string().contains(words), "{report:#}");
    }
    let (report, _) = examine(&config_of(&url.replacen("refundd@", "looker@", 1)));
    is_found(&report, "warning", "postgres.settings", "not checked whether commits wait");
    for (severity, names, words) in [
        ("warning", format!("ANY 1 (\"{name}\", other)"), "a commit waits for 1 of 2 standbys".to_owned()),
        // Nothing is committed from here on, because no such standbys can be there.
        ("broken", format!("ANY 2 (\"{name}\")"), "waits for 2 standbys, and it names 1".to_owned()),
        ("warning", "other".to_owned(), format!("no commit waits for {name}")),
    ] {
        let set = format!("alter system set synchronous_standby_names = '{names}'");
        database.execute(AssertSqlSafe(set)).await.unwrap();
        database.execute("select pg_reload_conf()").await.unwrap();
        let mut report = examine(&config_of(&url)).0;
        until("the setting is in force", async || {
            report = examine(&config_of(&url)).0;
            report.to_string().contains(&words)
        })
        .await;
        is_found(&report, severity, "postgres.settings", &words);
    }
    standby.stop().await.unwrap();
}

#[tokio::test]
async fn a_collation_of_another_version_than_the_recorded_one_is_broken() {
    let scratch = Scratch::new().await;
    if scratch.number("select current_setting('server_version_num')::bigint").await < 150_000 {
        // Postgres 14 records no version for a database.
        return;
    }
    scratch.sql("update pg_database set datcollversion = '0.0' where datname = current_database()").await;
    let (report, code) = examine(&config_of(&scratch.database_url));
    assert_eq!(code, 1);
    is_found(&report, "broken", "postgres.data", "0.0 is recorded");
}

#[tokio::test]
async fn a_sequence_behind_its_table_is_broken_because_a_save_without_a_conflict_target_is_lost() {
    let scratch = Scratch::with_refunds(3).await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_well(&report, "postgres.data", "no sequence is behind");
    // As in a logical copy.
    scratch.sql("select setval('refundd.refunds_id_seq', max(id) - 1) from refundd.refunds").await;
    let insert = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
                  values ('S-1', 'acme', 'P-1', 1, 'EUR') on conflict";
    assert_eq!(scratch.sql(&format!("{insert} do nothing")).await, 0, "this save is lost without an error");
    scratch.sql("select setval('refundd.refunds_id_seq', max(id) - 1) from refundd.refunds").await;
    let error = scratch.sql_error(&format!("{insert} (refund_ref) do nothing")).await;
    assert!(error.to_string().contains("refunds_pkey"), "{error}");
    scratch.sql("select setval('refundd.refunds_id_seq', max(id) - 1) from refundd.refunds").await;
    let (report, code) = examine(&config_of(&scratch.database_url));
    assert_eq!(code, 1);
    is_found(&report, "broken", "postgres.data", "refundd.refunds_id_seq is behind");
    // Before config/node-role.sql was run again.
    scratch.sql("revoke select on all sequences in schema refundd from refundd_node").await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_found(&report, "warning", "postgres.data", "may not read refundd.refunds_id_seq");
}

/// A caller who is told 422 saves it no more.
#[tokio::test]
async fn a_save_over_http_that_gets_the_id_of_another_refund_is_answered_500_until_it_gets_an_id_of_its_own()
{
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 3).await;
    scratch.sql("select setval('refundd.refunds_id_seq', 1, false)").await;
    let save = async || node.post("/v1/refunds", &refund("S-1", "acme")).await.status;
    assert_eq!(save().await, 500);
    until("it is saved", async || {
        let status = save().await;
        assert!(matches!(status.as_u16(), 201 | 500), "{status}");
        status == 201
    })
    .await;
    node.stop().await;
}
