//! Banks that say in their answers how long they keep an idle connection.

use std::time::Duration;

use refundd::refund::State;

use crate::harness::{Scratch, TestNode, within};

/// The bound that the node learns is half a second, and each gap between two sends is longer. There is one connection at a
/// time, so that the node has no unused one.
const SLOW: &str = "[limit.acme]\nalgorithm = \"paced\"\npermits = 1\nper = \"1s\"\nlateness = \"100ms\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\nmax_in_flight = 1\n";
const QUICK: &str = "[limit.acme]\npermits = 5\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";

async fn all_are_paid_once(scratch: &Scratch, count: u32) {
    scratch.insert("acme", "R-", count).await;
    within(Duration::from_secs(30), "all are paid", async || {
        scratch.count(State::Succeeded).await == i64::from(count)
    })
    .await;
    let ledger = scratch.bank.ledger();
    assert!(ledger.repeated().is_empty() && ledger.unreadable().is_empty(), "{ledger:?}");
    let sends = scratch.number("select count(*) from refundd.attempts where outcome = 'succeeded'").await;
    assert_eq!(sends, i64::from(count), "no answer was lost");
}

#[tokio::test]
async fn a_bank_that_announces_how_long_it_keeps_connections_gets_requests_on_younger_ones() {
    let scratch = Scratch::new().await;
    // Longer than it says, so that the node alone ends connections.
    scratch.bank.keeps(Duration::from_secs(10), 1);
    let node = TestNode::start(&scratch, "a", SLOW).await;
    all_are_paid_once(&scratch, 8).await;
    // A connection that waited for about a second was not used again.
    assert!(scratch.bank.opened() >= 8, "{}", scratch.bank.opened());
    node.stop().await;
}

/// Apache writes `timeout=0` for a bound below a second, and so does Node.
#[tokio::test]
async fn a_bank_that_announces_a_time_of_zero_is_sent_refunds_at_its_rate() {
    let scratch = Scratch::new().await;
    scratch.bank.keeps(Duration::from_millis(500), 0);
    let node = TestNode::start(&scratch, "a", QUICK).await;
    all_are_paid_once(&scratch, 20).await;
    assert!(scratch.bank.opened() <= 60, "{} connections for 20 requests", scratch.bank.opened());
    node.stop().await;
}
