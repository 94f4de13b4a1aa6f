//! Who may migrate, and what the others are told.

use refundd::store::Store;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::become_a_stranger;
use crate::chain::owned;
use crate::harness::Scratch;
use crate::harness::servers::SERVERS;

#[tokio::test]
async fn migrate_as_a_role_that_may_not_says_how_to_run_it_as_the_owner() {
    let mut scratch = Scratch::new().await;
    let name = scratch.name.clone();
    scratch.sql("drop schema refundd cascade").await;
    become_a_stranger(&mut scratch).await;
    let refused = scratch.store.migrate().await.unwrap_err().to_string();
    for words in [
        &format!("role `node_of_{name}` may create no schema in database `{name}`"),
        "run `refundd migrate` as `refundd`, its owner, as \"Migrating as the owner\" in docs/upgrading.md says",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    // An address there would invite a password on the command line.
    assert!(!refused.contains("postgres://"), "{refused}");
    // A role without any right on a schema that is there.
    let mut scratch = Scratch::new().await;
    become_a_stranger(&mut scratch).await;
    let refused = scratch.store.migrate().await.unwrap_err().to_string();
    let words = "run `refundd migrate` as `refundd` or as a member of it, as \"Migrating as the owner\" in docs/upgrading.md says";
    assert!(refused.contains(words) && !refused.contains("postgres://"), "{refused}");
}

#[tokio::test]
async fn the_owner_of_the_schema_migrates_without_the_right_to_create_one() {
    let scratch = owned().await;
    let owner = scratch.text("select current_user::text").await;
    // So is a dump that a superuser restored into a database of its own.
    let mut superuser = PgConnection::connect(&SERVERS.postgres.url(&scratch.name)).await.unwrap();
    let revoke = format!("revoke create on database {} from {owner}", scratch.name);
    superuser.execute(AssertSqlSafe(revoke)).await.unwrap();
    let error = scratch.sql_error("create schema if not exists refundd").await;
    assert!(error.to_string().contains("permission denied for database"), "{error}");

    scratch
        .sql("delete from refundd.migrations where version = (select max(version) from refundd.migrations)")
        .await;
    assert!(!scratch.store.schema().await.unwrap().is_enough());
    assert!(scratch.store.migrate().await.unwrap().is_enough());
}

#[tokio::test]
async fn a_member_of_the_owner_that_inherits_no_rights_migrates() {
    let scratch = owned().await;
    let owner = scratch.text("select current_user::text").await;
    let member = format!("member_of_{}", scratch.name);
    let mut superuser = PgConnection::connect(&SERVERS.postgres.url(&scratch.name)).await.unwrap();
    for make in [format!("create role {member} login noinherit"), format!("grant {owner} to {member}")] {
        superuser.execute(AssertSqlSafe(make)).await.unwrap();
    }
    let url = scratch.owner_url.replacen(&format!("{owner}@"), &format!("{member}@"), 1);
    let store = Store::open(&url, None, 2).unwrap();
    let error = store.schema().await.unwrap_err();
    assert!(format!("{error:?}").contains("permission denied for schema refundd"), "{error:?}");

    // With nothing to do, and with one migration.
    assert!(store.migrate().await.unwrap().is_enough());
    scratch
        .sql("delete from refundd.migrations where version = (select max(version) from refundd.migrations)")
        .await;
    assert!(store.migrate().await.unwrap().is_enough());
    assert!(scratch.store.schema().await.unwrap().is_enough());
}
