//! Rows that another transaction has locked.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::State;
use sqlx::{Connection, Executor};

use super::{SECOND, limited};
use crate::harness::{Scratch, TestNode, until, within};

/// How many commits of outcomes wait for a lock.
const SETTLES_THAT_WAIT: &str = "
    select count(*) from pg_stat_activity
     where datname = current_database() and wait_event_type = 'Lock' and query like '-- settle:%'";

/// A node that has sent R-1 to a bank that answers after six seconds.
async fn one_under_way() -> (Scratch, TestNode) {
    let scratch = Scratch::new().await;
    let patient = limited().replace("timeout = \"2s\"", "timeout = \"20s\"\nlease = \"60s\"");
    let node = TestNode::start(&scratch, "a", &patient).await;
    scratch.bank.next_for("acme", "R-1", [Step::pays().after(SECOND * 6)]);
    scratch.insert("acme", "R-", 1).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() == 1).await);
    (scratch, node)
}

#[tokio::test]
async fn a_row_that_somebody_holds_keeps_no_other_from_settling() {
    let (scratch, node) = one_under_way().await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("select id from refundd.refunds where refund_ref = 'R-1' for update").await.unwrap();
    until("R-1's outcome waits", async || scratch.number(SETTLES_THAT_WAIT).await > 0).await;
    scratch.insert("acme", "S-", 200).await;
    within(Duration::from_secs(45), "the others are settled", async || {
        scratch.count(State::Succeeded).await == 200
    })
    .await;
    assert_eq!(scratch.count(State::Sending).await, 1);
    lock.rollback().await.unwrap();
    // Other outcomes keep coming. This one does not wait until they pause.
    let others = async {
        for n in 0.. {
            scratch.insert("acme", &format!("T{n}-"), 1).await;
            tokio::time::sleep(SECOND / 4).await;
        }
    };
    let first = "select count(*) from refundd.refunds where refund_ref = 'R-1' and state = 'succeeded'";
    let settled =
        within(Duration::from_secs(20), "so is this one", async || scratch.number(first).await == 1);
    tokio::select! {
        () = others => {}
        _ = settled => {}
    }
    node.stop().await;
}

#[tokio::test]
async fn a_late_outcome_that_waits_for_the_count_of_ended_refunds_keeps_no_other_from_settling() {
    let (scratch, node) = one_under_way().await;
    let mut holder = scratch.connect().await;
    // Its lease was over, and the refund ended. The bank's answer makes it open again, so the count must not go on meanwhile.
    for end in ["'unknown'", "'failed', settled_at = now()"] {
        scratch.release("refund_ref = 'R-1'", &format!("state = {end}")).await;
    }
    let mut lock = holder.begin().await.unwrap();
    lock.execute("select * from refundd.ended_until for update").await.unwrap();
    until("R-1's outcome waits", async || scratch.number(SETTLES_THAT_WAIT).await > 0).await;
    scratch.insert("acme", "S-", 200).await;
    within(Duration::from_secs(45), "the others are settled", async || {
        scratch.count(State::Succeeded).await == 200
    })
    .await;
    assert_eq!(scratch.count(State::Failed).await, 1);
    lock.rollback().await.unwrap();
    within(Duration::from_secs(20), "a person sees this one", async || {
        scratch.count(State::Review).await == 1
    })
    .await;
    node.stop().await;
}
