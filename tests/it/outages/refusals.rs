//! A bank's refusal that Postgres cannot take yet: the node that heard it obeys it, and tells Postgres later.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::State;
use sqlx::{Connection, Executor};

use super::{SECOND, limited};
use crate::harness::{Scratch, TestNode, until, within};

/// The node's first request is refused like this while another session holds `lock`. Then more refunds wait, for longer
/// than a statement waits for a lock. Answers the node when the lock is free again.
async fn refused_under(scratch: &Scratch, lock: &'static str, refusal: Step) -> TestNode {
    let node = TestNode::start(scratch, "a", &limited()).await;
    until("the channel is there", async || {
        scratch.number("select count(*) from refundd.channels where channel = 'acme'").await == 1
    })
    .await;
    let mut holder = scratch.connect().await;
    let mut transaction = holder.begin().await.unwrap();
    transaction.execute(lock).await.unwrap();
    scratch.bank.next("acme", [refusal]);
    scratch.insert("acme", "R-", 1).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.all().len() == 1).await);
    scratch.insert("acme", "S-", 20).await;
    tokio::time::sleep(SECOND * 8).await; // the first try to write the refusal has failed by then
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1, "only the request that was refused");
    transaction.rollback().await.unwrap();
    node
}

#[tokio::test]
async fn a_channel_rests_as_its_bank_asked_although_its_row_is_locked() {
    let scratch = Scratch::new().await;
    let row = "select channel from refundd.channels where channel = 'acme' for update";
    let node = refused_under(&scratch, row, Step::too_many(30)).await;
    let cools = "select count(*) from refundd.channels where channel = 'acme' and cool_until > now()";
    within(SECOND * 10, "every node knows", async || scratch.number(cools).await == 1).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1);
    node.stop().await;
}

#[tokio::test]
async fn refused_credentials_that_could_not_be_written_suspend_a_channel_until_a_person_resumes_it() {
    let scratch = Scratch::new().await;
    // Nodes can read the suspensions, and write none.
    let table = "lock table refundd.suspensions in share mode";
    let node = refused_under(&scratch, table, Step::unauthorised()).await;
    within(SECOND * 10, "every node knows", async || scratch.suspensions().await == 1).await;
    assert_eq!(scratch.bank.look(|l| l.all().len()), 1);
    scratch.resume("acme").await;
    until("all are sent", async || scratch.count(State::Succeeded).await == 21).await;
    node.stop().await;
}
