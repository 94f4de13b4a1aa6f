//! Refunds that ended while their ids were in the bucket cost other refunds no permits.

use std::time::Duration;

use refundd::bucket::Purpose;
use refundd::refund::State;
use serde_json::json;

use super::channel;
use crate::harness::{Scratch, TestNode, depth, until};

/// Permits but those that closed before a busy machine sent their first byte.
async fn used_permits(scratch: &Scratch) -> i64 {
    let lapsed = "select (select count(*) from refundd.permits) - count(*) from refundd.attempts where code = 'permit_lapsed'";
    scratch.number(lapsed).await
}

/// Ids whose refunds were cancelled behind the line's back, as by SQL, or a moment before the take.
#[tokio::test]
async fn cancelled_refunds_that_stand_in_the_bucket_spend_none_of_a_days_permits() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 40").replace("\"1s\"", "\"1d\"")).await;
    scratch.pause("acme", "test", "test").await;
    scratch.insert("acme", "R-", 70).await;
    let acme = refundd::refund::ChannelName::new("acme").unwrap();
    let bucket = scratch.bucket();
    let depth = async || depth(&bucket, Purpose::Send, &acme).await;
    until("all stand in line", async || depth().await == 70).await;
    let gone = "update refundd.refunds set state = 'cancelled', settled_at = now() where id <= 30";
    assert_eq!(scratch.sql(gone).await, 30);
    scratch.resume("acme").await;
    until("the other forty are sent", async || scratch.count(State::Succeeded).await == 40).await;
    assert_eq!(used_permits(&scratch).await, 40);
    assert_eq!(scratch.bank.look(|l| l.all().len()), 40);
    node.stop().await;
}

#[tokio::test]
async fn refunds_past_their_deadline_do_not_stand_in_the_way_of_fresh_ones() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("algorithm = \"paced\"\npermits = 1")).await;
    scratch.insert("acme", "R-", 150).await;
    assert!(scratch.bank.until(Duration::from_secs(10), |l| !l.all().is_empty()).await);
    scratch.sql("update refundd.refunds set deadline_at = now() where state = 'ready'").await;
    let late = "select count(*) from refundd.refunds where reason = 'deadline_passed'";
    until("recovery sees that", async || scratch.number(late).await >= 140).await;
    let before = scratch.bank.look(|l| l.all().len());
    scratch.insert("acme", "F-", 1).await;
    let began = std::time::Instant::now();
    assert!(scratch.bank.until(Duration::from_secs(30), |l| l.all().len() > before).await);
    // 140 permits for them would take 150 s.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let sent = i64::try_from(scratch.bank.look(|l| l.all().len())).unwrap();
    assert_eq!(used_permits(&scratch).await, sent);
    node.stop().await;
}

/// Nobody withdraws them: their rows say by now that they are not due for an hour.
#[tokio::test]
async fn permits_of_dead_ids_carry_over_to_the_first_refund_that_can_be_sent() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("algorithm = \"paced\"\npermits = 2")).await;
    scratch.pause("acme", "test", "test").await;
    scratch.insert("acme", "R-", 300).await;
    scratch.insert("acme", "F-", 1).await;
    let acme = refundd::refund::ChannelName::new("acme").unwrap();
    let bucket = scratch.bucket();
    until("all stand in line", async || depth(&bucket, Purpose::Send, &acme).await == 301).await;
    assert_eq!(
        scratch.sql("update refundd.refunds set due_at = now() + interval '1 hour' where id <= 300").await,
        300
    );
    scratch.resume("acme").await;
    until("the node hears of it", async || {
        node.get("/v1/channels").await.json()["channels"][0]["paused"].is_null()
    })
    .await;
    let began = std::time::Instant::now();
    assert!(scratch.bank.until(Duration::from_secs(40), |l| !l.all().is_empty()).await);
    // 300 permits for them would take 150 s.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    until("it is settled", async || scratch.count(State::Succeeded).await == 1).await;
    assert_eq!(used_permits(&scratch).await, 1);
    // What was popped beyond the permits stands in line again, in its order.
    scratch.insert("acme", "G-", 5).await;
    until("the others go, too", async || scratch.count(State::Succeeded).await == 6).await;
    let order = scratch.bank.look(|l| l.all().iter().map(|a| a.refund_ref.to_string()).collect::<Vec<_>>());
    assert_eq!(order, ["F-1", "G-1", "G-2", "G-3", "G-4", "G-5"]);
    assert_eq!(used_permits(&scratch).await, 6);
    node.stop().await;
}

#[tokio::test]
async fn a_cancelled_refund_leaves_its_bucket_at_once() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &channel("permits = 5")).await;
    scratch.pause("acme", "test", "test").await;
    scratch.insert("acme", "R-", 3).await;
    let acme = refundd::refund::ChannelName::new("acme").unwrap();
    let bucket = scratch.bucket();
    let depth = async || depth(&bucket, Purpose::Send, &acme).await;
    until("all stand in line", async || depth().await == 3).await;
    assert_eq!(node.post("/v1/refunds/2/cancel", &json!({})).await.status, 200);
    until("it is gone", async || depth().await == 2).await;
    node.stop().await;
}
