//! A bank that resets a connection once, and works before and after that.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::State;

use crate::harness::{Scratch, TestNode, within};

/// No connection may be idle from one slot to the next, so each request goes on a new one. A slot can be used for some
/// milliseconds only.
const SLOW: &str = "[limit.acme]\nalgorithm = \"paced\"\npermits = 1\nper = \"1s\"\nlateness = \"20ms\"\n[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\nidle_timeout = \"200ms\"\n";

#[tokio::test]
async fn a_paced_channel_goes_on_in_the_next_slots_after_one_reset() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::resets().after(Duration::from_millis(100))]);
    let node = TestNode::start(&scratch, "a", SLOW).await;
    scratch.insert("acme", "R-", 4).await;
    within(Duration::from_secs(20), "the others are paid", async || {
        scratch.count(State::Succeeded).await == 3
    })
    .await;
    assert_eq!(scratch.bank.ledger().repeated(), [], "nothing was sent twice");
    node.stop().await;
}
