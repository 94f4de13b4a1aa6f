//! What stands between us and Postgres, or was set for our role, cannot take away what we rely on.

use std::time::Duration;

use playground::PrivatePgBouncer;
use refundd::store::Store;
use sqlx::{Connection, PgConnection};

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, within};

async fn pooler(mode: &str, ignored: &str) -> PrivatePgBouncer {
    let settings = format!("pool_mode = {mode}\nignore_startup_parameters = {ignored}");
    PrivatePgBouncer::start(&SERVERS.postgres, &settings).await.unwrap()
}

/// A scratch whose url leads through a pooler.
async fn scratch_behind(pooler: &PrivatePgBouncer) -> Scratch {
    let mut scratch = Scratch::new().await;
    scratch.store.close().await;
    scratch.database_url = pooler.url(&scratch.name);
    scratch.store = Store::open(&scratch.database_url, None, 4).unwrap();
    scratch
}

#[tokio::test]
async fn behind_a_pooler_in_session_mode_refunds_go_and_commits_are_durable() {
    let pooler = pooler("session", "options,extra_float_digits").await;
    let scratch = scratch_behind(&pooler).await;
    // A default that a lost setting would fall back to; our own session is from before.
    let mut own = PgConnection::connect(&SERVERS.postgres.url(&scratch.name)).await.unwrap();
    for setting in ["synchronous_commit = off", "statement_timeout = '1ms'"] {
        let alter = format!("alter database {} set {setting}", scratch.name);
        sqlx::query(sqlx::AssertSqlSafe(alter)).execute(&mut own).await.unwrap();
    }
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let save = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
                select 'R-' || n, 'acme', 'P-1', 100, 'EUR' from generate_series(1, 20) n";
    sqlx::query(save).execute(&mut own).await.unwrap();
    within(Duration::from_secs(20), "20 refunds end", async || scratch.bank.ledger().all().len() == 20).await;
    node.stop().await;
    pooler.stop().await.unwrap();
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_with_the_way_out() {
    let pooler = pooler("transaction", "options,extra_float_digits\nserver_reset_query_always = 1").await;
    let scratch = scratch_behind(&pooler).await;
    let error = scratch.store.ping().await.unwrap_err();
    assert!(error.is_unfit(), "{error:?}");
    pooler.stop().await.unwrap();
    let pooler = self::pooler("transaction", "options,extra_float_digits").await;
    let scratch = scratch_behind(&pooler).await;
    let error = scratch.store.reach().await.unwrap_err();
    assert!(error.is_unfit(), "{error:?}");
    let given = file(&scratch.file("a", UNLIMITED));
    for command in [&["status"][..], &["migrate"], &["run"]] {
        let output = refundd(given.path(), command);
        assert!(!output.status.success(), "{command:?}");
        let said = text(&output);
        assert!(said.contains("pool_mode = session"), "{command:?}: {said}");
    }
    pooler.stop().await.unwrap();
}

#[tokio::test]
async fn a_session_that_another_of_our_clients_used_is_not_taken_over() {
    let pooler = pooler("transaction", "options,extra_float_digits").await;
    let scratch = scratch_behind(&pooler).await;
    let two = [
        Store::open(&scratch.database_url, None, 1).unwrap(),
        Store::open(&scratch.database_url, None, 1).unwrap(),
    ];
    two[0].ping().await.unwrap();
    let error = two[1].ping().await.unwrap_err();
    assert!(error.is_unfit(), "{error:?}");
    pooler.stop().await.unwrap();
}

#[tokio::test]
async fn a_pooler_that_refuses_start_up_parameters_is_named_with_the_way_out() {
    let pooler = pooler("session", "").await;
    let scratch = scratch_behind(&pooler).await;
    let error = scratch.store.reach().await.unwrap_err();
    let said = refundd::logs::chain(&error).to_string();
    assert!(said.contains("ignore_startup_parameters"), "{said}");
    pooler.stop().await.unwrap();
}

#[tokio::test]
async fn settings_of_a_role_or_a_database_are_overridden() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 3).await;
    // Its session is from before.
    let mut own = scratch.connect().await;
    // Long enough for the statement that overrides them, on a busy machine.
    for setting in [
        "default_transaction_isolation = 'serializable'",
        "statement_timeout = '100ms'",
        "lock_timeout = '100ms'",
        "idle_in_transaction_session_timeout = '100ms'",
        "synchronous_commit = off",
        "client_encoding = 'LATIN1'",
        "search_path = public, pg_catalog",
    ] {
        let alter = format!("alter database {} set {setting}", scratch.name);
        sqlx::query(sqlx::AssertSqlSafe(alter)).execute(&mut own).await.unwrap();
    }
    let store = Store::open(&scratch.database_url, None, 1).unwrap();
    store.reach().await.unwrap();
    let role = format!("serial_{}", scratch.name);
    for statement in [
        format!("create role {role} superuser login"),
        format!("alter role {role} set default_transaction_isolation = 'serializable'"),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut own).await.unwrap();
    }
    let url = scratch.owner_url.replace("refundd@", &format!("{role}@"));
    let store = Store::open(&url, None, 1).unwrap();
    store.reach().await.unwrap();
    let acme = refundd::refund::ChannelName::new("acme").unwrap();
    assert_eq!(store.due(&acme, 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_role_that_may_not_write_by_default_is_refused_until_it_may() {
    let scratch = Scratch::new().await;
    let of_database = format!("alter database {} set default_transaction_read_only", scratch.name);
    scratch.sql(&format!("{of_database} = on")).await;
    let store = Store::open(&scratch.database_url, None, 1).unwrap();
    let error = store.reach().await.unwrap_err();
    let said = refundd::logs::chain(&error).to_string();
    assert!(said.contains("default_transaction_read_only"), "{said}");
    assert!(error.is_outage() && !error.is_unfit(), "{said}");
    let mut other = scratch.connect().await;
    sqlx::query("set default_transaction_read_only = off").execute(&mut other).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("{of_database} = off"))).execute(&mut other).await.unwrap();
    store.reach().await.unwrap();
}

#[tokio::test]
async fn triggers_that_sleep_for_a_role_are_refused() {
    let scratch = Scratch::new().await;
    scratch.sql(&format!("alter database {} set session_replication_role = replica", scratch.name)).await;
    let error = scratch.store.reach().await.unwrap_err();
    let said = refundd::logs::chain(&error).to_string();
    assert!(error.is_unfit() && said.contains("session_replication_role"), "{said}");
}

#[tokio::test]
async fn a_database_of_another_encoding_is_refused_with_the_way_out() {
    let mut other = PgConnection::connect(&SERVERS.postgres.url("postgres")).await.unwrap();
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = format!("in_{}", encoding.to_lowercase());
        let create = format!("create database {name} encoding '{encoding}' template template0");
        sqlx::query(sqlx::AssertSqlSafe(create)).execute(&mut other).await.unwrap();
        let store = Store::open(&SERVERS.postgres.url(&name), None, 1).unwrap();
        let error = store.migrate().await.unwrap_err();
        let said = refundd::logs::chain(&error).to_string();
        assert!(error.is_unfit() && said.contains(encoding) && said.contains("encoding 'UTF8'"), "{said}");
    }
}
