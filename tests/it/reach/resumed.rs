//! What `refundd_bank_connected` says while a channel is paused, and after its resume.

use std::time::Duration;

use playground::forward::{Forward, Target, Weather};

use super::{at, failures};
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn after_a_resume_a_bank_that_is_back_counts_as_connected_though_there_is_nothing_to_send() {
    let scratch = Scratch::new().await;
    let way = Forward::to(Target::Tcp(scratch.bank.address())).unwrap();
    way.set(Weather::Closed);
    let node = TestNode::start(&scratch, "a", &at(&way.address().to_string(), "")).await;
    let says = async |connected: u8| {
        let sample = format!("refundd_bank_connected{{channel=\"acme\",purpose=\"send\"}} {connected}\n");
        node.get("/metrics").await.text.contains(&sample)
    };
    scratch.insert("acme", "R-", 1).await;
    until("the bank is away", async || says(0).await).await;
    scratch.pause("acme", "its bank is away", "test").await;
    scratch.sql("update refundd.refunds set state = 'cancelled', settled_at = now()").await;
    until("the paused node tries no more", async || {
        let tried = failures(&node).await;
        // It tries more often than that.
        tokio::time::sleep(Duration::from_secs(5)).await;
        failures(&node).await == tried
    })
    .await;
    way.set(Weather::Fair);
    assert!(says(0).await, "the last try failed");
    scratch.resume("acme").await;
    until("the bank is connected", async || says(1).await).await;
    node.stop().await;
}
