//! Findings about what keeps Postgres from cleaning up, about rows without a table of their day, and about too many such tables.

use playground::{PostgresOptions, PrivatePostgres};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::{NO_REDIS, config, config_of, examine, finding, is_found, is_well};
use crate::harness::Scratch;

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
    // Postgres's clock was ahead.
    let spend = "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
                 values ('acme', now() + interval '20 days', 1, 'shop', 'node-a')";
    scratch.sql(spend).await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_found(&report, "warning", "postgres.partitions", "rows in refundd.permits_of_other_days: 1");
}

const TABLES: &str = "select count(*) from pg_inherits where inhparent = 'refundd.permits'::regclass";

#[tokio::test]
async fn more_days_of_permits_than_all_claims_can_lock_are_found() {
    let scratch = Scratch::new().await;
    let with = |algorithm: &str| {
        let limit = format!("[limit.acme]\nalgorithm = \"{algorithm}\"\npermits = 1\nper = \"1s\"\n");
        // The servers of tests have room for nearly 20,000 locks.
        config(&scratch.database_url, NO_REDIS, &limit).replace("connections = 4", "connections = 1000")
    };
    let few = scratch.number(TABLES).await;
    is_well(&examine(&with("paced")).0, "postgres.locks", &format!("tables of permits: {few},"));
    make_tables_of_days(&scratch).await;
    let many = scratch.number(TABLES).await;
    let (report, _) = examine(&with("paced"));
    is_found(&report, "warning", "postgres.locks", &format!("hold {} locks", 2 * 1000 * many));
    let way_out = finding(&report, "postgres.locks", "hold")["way_out"].as_str().unwrap();
    assert!(
        way_out.contains("keep_permits") && way_out.contains("max_locks_per_transaction to "),
        "{way_out}"
    );
    // A claim under a fixed window reads no other day.
    let (report, _) = examine(&with("fixed_window"));
    assert!(!report.to_string().contains("postgres.locks"), "{report:#}");
}

/// What the finding multiplies by.
#[tokio::test]
async fn a_claim_that_counts_spans_locks_the_table_and_the_index_of_each_day() {
    const LOCKED: &str = "
        select count(*) from pg_locks l join pg_class c on c.oid = l.relation
         where l.pid = pg_backend_pid() and c.relispartition and c.relname like 'permits_%'";
    const RULE: &str = r#"{"algorithm":"sliding_log","permits":2,"per_us":1000000,"lateness_us":20000}"#;
    let scratch = Scratch::new().await;
    make_tables_of_days(&scratch).await;
    let tables = scratch.number(TABLES).await;
    let mut claim = scratch.connect().await;
    claim.execute("begin").await.unwrap();
    let count = format!(
        "select refundd.spans_keep_rule('acme', '{RULE}', array[(extract(epoch from now()) * 1000000)::bigint])"
    );
    assert!(sqlx::query_scalar::<_, bool>(AssertSqlSafe(count)).fetch_one(&mut claim).await.unwrap());
    let locked: i64 = sqlx::query_scalar(LOCKED).fetch_one(&mut claim).await.unwrap();
    assert_eq!(locked, 2 * tables);
}

/// Twenty tables of later days.
async fn make_tables_of_days(scratch: &Scratch) {
    let tables = "
        do $$ declare day timestamp := (now() at time zone 'UTC')::date; begin
            for n in 10..29 loop
                execute format('create table refundd.permits_until_%s partition of refundd.permits for values from (%L) to (%L)',
                               to_char(day + (n + 1) * interval '1 day', 'YYYYMMDD'),
                               (day + n * interval '1 day') at time zone 'UTC', (day + (n + 1) * interval '1 day') at time zone 'UTC');
            end loop;
        end $$";
    scratch.sql(tables).await;
}
