//! The indexes by which refunds are found are built beside running nodes.

use refundd::store::Store;

use crate::harness::Scratch;

/// Takes the migration of the indexes back, and those after it.
async fn undo(scratch: &Scratch) {
    for undo in [
        "drop table refundd.feed",
        "drop function refundd.recovery_moved, refundd.feed_reach, refundd.deliver",
        "drop index refundd.refunds_by_request_id, refundd.refunds_by_payment_ref",
        "delete from refundd.migrations where version >= 39",
    ] {
        scratch.sql(undo).await;
    }
}

const VALID: &str = "select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid
     where c.relname in ('refunds_by_request_id', 'refunds_by_payment_ref') and i.indisvalid";

#[tokio::test]
async fn two_migrations_at_once_build_the_indexes_once() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 100).await;
    undo(&scratch).await;
    let owner = Store::open(&scratch.owner_url, None, 2).unwrap();
    // Two at once: one builds, the other one waits for it.
    let (a, b) = tokio::join!(owner.migrate(), owner.migrate());
    assert!(a.unwrap().is_enough() && b.unwrap().is_enough());
    assert_eq!(scratch.number(VALID).await, 2);
}

#[tokio::test]
async fn an_index_whose_build_broke_off_is_built_again() {
    let scratch = Scratch::new().await;
    undo(&scratch).await;
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
        ("state <> 'sending' and payment_ref", "'P-7'"),
        ("state = 'sending' and payment_ref", "'P-7'"),
        ("channel = 'acme' and bank_ref", "'B-7'"),
    ] {
        let explain = format!("explain select id from refundd.refunds where {column} = {value}");
        let lines: Vec<String> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(explain)).fetch_all(&mut connection).await.unwrap();
        let plan = lines.join("\n");
        assert!(plan.contains("Index") && !plan.contains("Seq Scan"), "{column}: {plan}");
    }
}
