//! Migrations that another program left out, or applies at the same time.

use std::time::Duration;

use refundd::store::Store;
use sqlx::migrate::Migrate;
use sqlx::{AssertSqlSafe, Executor};

use crate::harness::{Scratch, until};

/// Two versions of the program may each have migrated the schema: the newest number says nothing about the others.
#[tokio::test]
async fn a_migration_that_was_left_out_is_found_and_applied() {
    let scratch = Scratch::new().await;
    let last = scratch.store.schema().await.unwrap().known;
    scratch.sql(&format!("delete from refundd.migrations where version = {last}")).await;
    scratch
        .sql("insert into refundd.migrations (version, description, success, checksum, execution_time) values (9999, 'from the future', true, '', 0)")
        .await;
    let schema = scratch.store.schema().await.unwrap();
    assert_eq!((schema.applied, schema.missing), (9999, Some(last)));
    let fault = scratch.store.fault_of_schema().await.unwrap().expect("a node does not start").to_string();
    assert!(fault.contains(&format!("lacks migration {last}")), "{fault}");

    let owner = Store::open(&scratch.owner_url, None, 1).unwrap();
    assert!(owner.migrate().await.unwrap().is_enough());
    assert_eq!(
        scratch.number(&format!("select count(*) from refundd.migrations where version = {last}")).await,
        1
    );
}

#[tokio::test]
async fn a_migration_waits_until_another_one_is_over() {
    let scratch = Scratch::new().await;
    let last = scratch.store.schema().await.unwrap().known;
    scratch.sql(&format!("delete from refundd.migrations where version = {last}")).await;
    // The lock of src/store/migrations/alone.rs, as another program holds it.
    let mut other = scratch.connect().await;
    let lock = sqlx::query("select pg_advisory_lock($1)").bind(0x7265_6675_6e64_0039_i64);
    lock.execute(&mut other).await.unwrap();
    let asks = "select count(*) from pg_stat_activity where datname = current_database() and query like 'select pg_try_advisory_lock%'";
    let owner = Store::open(&scratch.owner_url, None, 1).unwrap();
    let (schema, ()) = tokio::join!(owner.migrate(), async {
        until("it asks for the lock, or it is done", async || {
            scratch.number(asks).await > 0 || scratch.store.schema().await.unwrap().is_enough()
        })
        .await;
        assert_eq!(scratch.store.schema().await.unwrap().missing, Some(last));
        sqlx::query("select pg_advisory_unlock_all()").execute(&mut other).await.unwrap();
    });
    assert!(schema.unwrap().is_enough());
}

#[tokio::test]
async fn a_migration_that_waits_names_the_session_with_the_lock_and_ends_with_an_error() {
    let scratch = Scratch::new().await;
    let last = scratch.store.schema().await.unwrap().known;
    scratch.sql(&format!("delete from refundd.migrations where version = {last}")).await;
    let mut other = scratch.connect().await;
    let lock = sqlx::query("select pg_advisory_lock($1)").bind(0x7265_6675_6e64_0039_i64);
    lock.execute(&mut other).await.unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut other).await.unwrap();
    let holder = format!("the session with pid {pid} of role `refundd`");
    let owner = Store::open(&scratch.owner_url, None, 1).unwrap();
    let mut told = Vec::new();
    let waited =
        owner.migrate_telling(Duration::from_millis(300), |progress| told.push(progress.to_string())).await;
    let error = waited.unwrap_err().to_string();
    assert!(error.contains(&holder) && error.contains("run this one again"), "{error}");
    assert!(told.len() == 1 && told[0].contains(&holder), "{told:?}");
    assert_eq!(scratch.store.schema().await.unwrap().missing, Some(last));
    sqlx::query("select pg_advisory_unlock_all()").execute(&mut other).await.unwrap();
    assert!(owner.migrate().await.unwrap().is_enough());
}

#[tokio::test]
async fn a_migration_that_gets_no_lock_names_the_sessions_and_prepared_transactions_that_hold_one() {
    let scratch = Scratch::new().await;
    let last = scratch.store.schema().await.unwrap().known;
    scratch.sql(&format!("delete from refundd.migrations where version = {last}")).await;
    let owner = Store::open(&scratch.owner_url, None, 1).unwrap();
    let mut other = scratch.connect().await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut other).await.unwrap();
    let session = format!("the session with pid {pid} of role `refundd`");
    let prepared = format!("forgotten in {}", scratch.name);
    // A migration writes into this table at its end.
    let lock = "lock table refundd.migrations in share mode";
    let prepare = format!("begin; {lock}; prepare transaction '{prepared}'; begin; {lock}");
    for one in prepare.split("; ") {
        other.execute(AssertSqlSafe(one.to_owned())).await.unwrap();
    }
    let error = owner.migrate().await.unwrap_err().to_string();
    assert!(error.contains(&session), "{error}");
    assert!(error.contains(&format!("the prepared transaction `{prepared}`")), "{error}");
    for end in ["rollback".to_owned(), format!("rollback prepared '{prepared}'")] {
        other.execute(AssertSqlSafe(end)).await.unwrap();
    }

    // The lock of sqlx, as a program before 0.1.0 holds it.
    other.lock().await.unwrap();
    let error = owner.migrate().await.unwrap_err().to_string();
    assert!(error.contains(&session) && !error.contains("prepared"), "{error}");
    other.unlock().await.unwrap();
    assert!(owner.migrate().await.unwrap().is_enough());
}

/// `vacuum` takes this mode, too. The migration replaces a trigger, and Postgres lets no `vacuum` run beside that.
#[tokio::test]
async fn a_migration_that_replaces_a_trigger_waits_for_a_vacuum_of_the_refunds_and_names_it() {
    let scratch = Scratch::new().await;
    scratch.sql("delete from refundd.migrations where version = 93").await;
    let mut other = scratch.connect().await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut other).await.unwrap();
    other.execute("begin; lock table refundd.refunds in share update exclusive mode").await.unwrap();
    let owner = Store::open(&scratch.owner_url, None, 1).unwrap();
    let error = owner.migrate().await.unwrap_err().to_string();
    assert!(error.contains(&format!("the session with pid {pid} of role `refundd`")), "{error}");
    other.execute("rollback").await.unwrap();
    assert!(owner.migrate().await.unwrap().is_enough());
}

/// Some migrations were edited before the first release.
#[tokio::test]
async fn a_migration_that_was_applied_with_another_text_is_named_with_the_way_on() {
    let scratch = Scratch::new().await;
    let last = scratch.store.schema().await.unwrap().known;
    scratch.sql(&format!("delete from refundd.migrations where version = {last}")).await;
    scratch.sql("update refundd.migrations set checksum = '' where version = 82").await;
    let owner = Store::open(&scratch.owner_url, None, 1).unwrap();
    let error = owner.migrate().await.unwrap_err().to_string();
    assert!(error.contains("applied migration 82 with another text"), "{error}");
    assert!(error.contains("docs/upgrading.md"), "{error}");
    assert_eq!(scratch.store.schema().await.unwrap().missing, Some(last));
}

/// As Ctrl-C ends `refundd migrate`.
#[tokio::test]
async fn a_migration_whose_program_is_gone_ends_in_postgres_too() {
    let scratch = Scratch::new().await;
    // Of all migrations this one alone waits for a lock for as long as it takes.
    scratch.sql("delete from refundd.migrations where version = 39").await;
    let mut other = scratch.connect().await;
    other.execute("begin; lock table refundd.refunds in share update exclusive mode").await.unwrap();
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and query like 'create index concurrently%'";
    let owner = Store::open(&scratch.owner_url, None, 1).unwrap();
    tokio::select! {
        migrated = owner.migrate() => panic!("nothing held it up: {migrated:?}"),
        _ = until("it waits for the lock", async || scratch.number(waits).await > 0) => {}
    }
    until("its statement has ended", async || scratch.number(waits).await == 0).await;
    other.execute("rollback").await.unwrap();
    assert!(owner.migrate().await.unwrap().is_enough());
}
