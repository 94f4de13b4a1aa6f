//! The indexes by which refunds are found are built beside running nodes.

use refundd::store::Store;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::harness::Scratch;
use crate::harness::servers::SERVERS;

/// A database of its own as migration 38 left it, with refunds that were saved before the indexes.
async fn without_indexes() -> Scratch {
    let mut scratch = Scratch::new().await;
    let name = format!("{}_at_38", scratch.name);
    SERVERS.postgres.create_database(&name, None).await.unwrap();
    scratch.owner_url = SERVERS.postgres.url(&name);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let mut migrations: Vec<Migration> = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (number, title) = name.split_once('_').unwrap();
        let (number, text) = (number.parse().unwrap(), std::fs::read_to_string(&path).unwrap());
        if number < 39 {
            let sql = AssertSqlSafe(text).into_sql_str();
            migrations.push(Migration::new(
                number,
                title.to_owned().into(),
                MigrationType::Simple,
                sql,
                false,
            ));
        }
    }
    migrations.sort_by_key(|migration| migration.version);
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.create_schema("refundd");
    migrator.dangerous_set_table_name("refundd.migrations");
    migrator.run(&mut scratch.connect().await).await.unwrap();
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 100).await;
    scratch
}

const VALID: &str = "select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid
     where c.relname in ('refunds_by_request_id', 'refunds_by_payment_ref') and i.indisvalid";

#[tokio::test]
async fn two_migrations_at_once_build_the_indexes_once() {
    let scratch = without_indexes().await;
    let owner = Store::open(&scratch.owner_url, None, 2).unwrap();
    // Two at once: one builds, the other one waits for it.
    let (a, b) = tokio::join!(owner.migrate(), owner.migrate());
    assert!(a.unwrap().is_enough() && b.unwrap().is_enough());
    assert_eq!(scratch.number(VALID).await, 2);
}

#[tokio::test]
async fn an_index_whose_build_broke_off_is_built_again() {
    let scratch = without_indexes().await;
    scratch
        .sql("create index refunds_by_request_id on refundd.refunds (request_id) where state <> 'sending'")
        .await;
    scratch
        .sql("update pg_index set indisvalid = false where indexrelid = 'refundd.refunds_by_request_id'::regclass")
        .await;
    let owner = Store::open(&scratch.owner_url, None, 2).unwrap();
    assert!(owner.migrate().await.unwrap().is_enough());
    assert_eq!(scratch.number(VALID).await, 2);
}

#[tokio::test]
async fn every_name_of_a_refund_is_looked_up_by_an_index() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 5_000).await;
    scratch.sql("analyze refundd.refunds").await;
    let mut connection = scratch.connect().await;
    for (column, value) in [
        ("refund_ref", "'R-7'"),
        ("state <> 'sending' and request_id", "'00000000-0000-4000-8000-000000000000'"),
        ("state <> 'sending' and payment_ref", "'P-7' limit 10000"),
        ("state = 'sending' and payment_ref", "'P-7' limit 10000"),
        ("channel = 'acme' and bank_ref", "'B-7'"),
    ] {
        let explain = format!("explain select id from refundd.refunds where {column} = {value}");
        let lines: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut connection).await.unwrap();
        let plan = lines.join("\n");
        assert!(plan.contains("Index") && !plan.contains("Seq Scan"), "{column}: {plan}");
    }
}
