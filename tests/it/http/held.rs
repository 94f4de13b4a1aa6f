//! Refunds that another transaction holds, or is about to save.

use futures_util::future::join_all;
use refundd::refund::State;
use serde_json::json;
use sqlx::{Connection, Executor};

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

/// Two of all callers together.
const MOST_CANCELS: i64 = 2;

#[tokio::test]
async fn cancellations_of_refunds_that_somebody_holds_leave_connections_to_the_channel_workers() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, due_at)
             select 'H-' || n, 'acme', 'P', 1, 'EUR', now() + interval '1 day' from generate_series(1, 50) n",
        )
        .await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("select 1 from refundd.refunds for update").await.unwrap();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                      and query like '%refundd.cancel(%'";
    let cancel = async |id: i32| node.post(&format!("/v1/refunds/{id}/cancel"), &json!({})).await.status;
    let cancels = join_all((1..=50).map(|id| Box::pin(cancel(id))));
    let others = async {
        until("cancellations wait for the lock", async || scratch.number(waiting).await >= MOST_CANCELS)
            .await;
        scratch.insert("acme", "R-", 1).await;
        let mut most = 0;
        until("another refund is sent and settled", async || {
            most = most.max(scratch.number(waiting).await);
            scratch.count(State::Succeeded).await == 1
        })
        .await;
        most
    };
    let most = tokio::select! {
        statuses = cancels => panic!("answered {statuses:?} before the other one was settled"),
        most = others => most,
    };
    assert!(most <= MOST_CANCELS, "{most} cancellations wait on a connection each");
    lock.rollback().await.unwrap();
    until("one of them is cancelled", async || cancel(1).await == 200).await;
    node.stop().await;
}
