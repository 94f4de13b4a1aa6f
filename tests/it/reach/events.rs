//! The events that a node cannot reach a bank, and that it reaches it again.

use playground::forward::{Forward, Target, Weather};
use refundd::refund::State;

use super::{at, failures};
use crate::harness::{Scratch, TestNode, until};

const BREAKER: &str = "breaker = { unreachable = 3 }\n";

async fn says(scratch: &Scratch, kinds: &str) {
    let written = "select coalesce(string_agg(kind, ' ' order by event_id), '') from refundd.events where kind like 'bank_%'";
    until(kinds, async || scratch.text(written).await == kinds).await;
}

/// The usual repair. The worker that failed is gone by then.
#[tokio::test]
async fn a_bank_that_is_reached_after_a_reload_is_an_event_too() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", &at("127.0.0.1:1", BREAKER)).await;
    scratch.insert("acme", "R-", 5).await;
    says(&scratch, "bank_unreachable").await;
    let other = format!("{BREAKER}timeout = \"9s\"\n");
    node.daemon.reload(scratch.config("a", &at("127.0.0.1:1", &other))).await.unwrap();
    let before = failures(&node).await;
    until("the new worker has failed, too", async || failures(&node).await >= before + 4).await;
    says(&scratch, "bank_unreachable").await;
    node.daemon.reload(scratch.config("a", &at("{bank}", BREAKER))).await.unwrap();
    says(&scratch, "bank_unreachable bank_reached").await;
    until("all are paid", async || scratch.count(State::Succeeded).await == 5).await;
    node.stop().await;
}

#[tokio::test]
async fn an_event_that_postgres_does_not_take_is_written_when_it_does() {
    let scratch = Scratch::new().await;
    let way = Forward::to(Target::Tcp(scratch.bank.address())).unwrap();
    way.set(Weather::Closed);
    let node = TestNode::start(&scratch, "a", &at(&way.address().to_string(), BREAKER)).await;
    scratch.sql("alter function refundd.note_reach rename to note_reach_no_more").await;
    scratch.insert("acme", "R-", 5).await;
    until("an event is to be written", async || failures(&node).await >= 5).await;
    scratch.sql("alter function refundd.note_reach_no_more rename to note_reach").await;
    says(&scratch, "bank_unreachable").await;
    way.set(Weather::Fair);
    says(&scratch, "bank_unreachable bank_reached").await;
    node.stop().await;
}
