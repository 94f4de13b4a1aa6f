//! Postgres answers and takes heartbeats, and takes no refunds.

use refundd::refund::State;
use sqlx::{Connection, Executor};

use super::{LIMITED, health_says, healthy, status_says};
use crate::harness::node::refund;
use crate::harness::{Scratch, until};

/// `create index` without `concurrently` takes this lock.
#[tokio::test]
async fn somebody_builds_an_index_on_the_refunds() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.pause("acme", "so that some wait", "test").await;
    scratch.insert("acme", "W-", 5).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.refunds in share mode").await.unwrap();
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 503);
    health_says(&node, 503, "no refund can be saved").await;
    watch.fires("RefunddSavesFail").await;
    assert!(node.get("/metrics").await.text.contains("refundd_postgres_up 1\n"));
    scratch.resume("acme").await;
    status_says(&scratch, LIMITED, &["blocked", "failed to claim"]).await;
    lock.rollback().await.unwrap();
    // No caller comes meanwhile.
    health_says(&node, 200, "\"ready\"").await;
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 201);
    until("all are sent", async || scratch.count(State::Succeeded).await == 7).await;
    watch.is_quiet().await;
    node.stop().await;
}

#[tokio::test]
async fn the_role_of_the_nodes_lost_a_right() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    scratch.sql("revoke insert (refund_ref) on refundd.refunds from refundd_node").await;
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 500);
    health_says(&node, 503, "permission denied").await;
    watch.fires("RefunddSavesFail").await;
    scratch.sql("grant insert (refund_ref) on refundd.refunds to refundd_node").await;
    health_says(&node, 200, "\"ready\"").await;
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 201);
    node.stop().await;
}

/// The node can do its work: other refunds are saved.
#[tokio::test]
async fn a_producer_that_holds_one_ref_makes_no_node_unready() {
    let scratch = Scratch::new().await;
    let (node, mut watch) = healthy(&scratch, LIMITED).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute(
        "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
         values ('R-1', 'acme', 'P', 1, 'EUR')",
    )
    .await
    .unwrap();
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, 503);
    for _ in 0..20 {
        // `degraded` would be Redis on a busy machine.
        let health = node.get("/health/ready").await;
        assert_eq!(health.status, 200, "{}", health.text);
        watch.is_quiet().await;
    }
    lock.rollback().await.unwrap();
    node.stop().await;
}
