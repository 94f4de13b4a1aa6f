//! Findings about what keeps Postgres from cleaning up, and about rows without a table of their day.

use playground::{PostgresOptions, PrivatePostgres};
use sqlx::{Connection, Executor, PgConnection};

use super::{NO_REDIS, config, examine, finding, is_found, is_well};
use crate::harness::Scratch;

fn config_of(url: &str) -> String {
    config(url, NO_REDIS, "")
}

/// Each of these little transactions inside of the great one has a number of its own.
const MANY_TRANSACTIONS: &str = "
    do $$ begin
        create temporary table passing (n integer);
        for n in 1..50100 loop
            begin insert into passing values (n); exception when division_by_zero then null; end;
        end loop;
    end $$";

#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_of_another_role_is_found_by_the_transactions_that_were_begun_since() {
    let postgres = PrivatePostgres::start_with(&PostgresOptions::for_tests()).await.unwrap();
    let url = postgres.url("postgres");
    let (mut reader, mut writer) =
        (PgConnection::connect(&url).await.unwrap(), PgConnection::connect(&url).await.unwrap());
    writer.execute("create role looker login").await.unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut reader).await.unwrap();
    // As a dump reads.
    reader.execute("begin isolation level repeatable read").await.unwrap();
    reader.execute("select count(*) from pg_class").await.unwrap();
    let as_looker = config_of(&url.replacen("refundd@", "looker@", 1));
    is_well(&examine(&as_looker).0, "postgres.snapshots", "this role sees no time");
    writer.execute(MANY_TRANSACTIONS).await.unwrap();
    let (report, _) = examine(&as_looker);
    is_found(&report, "warning", "postgres.snapshots", &format!("pid {pid} "));
    let found = finding(&report, "postgres.snapshots", "pid")["found"].as_str().unwrap();
    assert!(found.contains("does not see since when"), "{found}");
    // A role that sees the time sees that it is a moment ago.
    is_well(&examine(&config_of(&url)).0, "postgres.snapshots", "older than 30 minutes");
    reader.execute("rollback").await.unwrap();
    is_well(&examine(&as_looker).0, "postgres.snapshots", "older than 30 minutes");
}

#[tokio::test]
async fn permits_that_stand_in_no_table_of_a_day_are_counted() {
    let scratch = Scratch::new().await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_well(&report, "postgres.partitions", "no row");
    // No node led for two days.
    let spend = "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
                 values ('acme', now() + interval '20 days', 1, 'shop', 'node-a')";
    scratch.sql(spend).await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_found(&report, "warning", "postgres.partitions", "rows in refundd.permits_of_other_days: 1");
}
