//! A reload changes the channel while its bank fails.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::State;

use super::{NEVER_PROBED, arrived, events, one_by_one, trips};
use crate::harness::{Scratch, TestNode, until};

/// The breaker trips at three. Two failed before, and a third one was in flight.
#[tokio::test]
async fn what_failed_under_the_old_settings_does_not_trip_the_new_ones() {
    let scratch = Scratch::new().await;
    let channel = |in_flight: u32| {
        one_by_one(NEVER_PROBED).replace("max_in_flight = 1", &format!("max_in_flight = {in_flight}"))
    };
    let failed = async |count: i64| {
        until("a person sees what failed", async || scratch.count(State::Review).await == count).await;
    };
    scratch.bank.next("acme", [Step::resets(), Step::resets()]);
    scratch.bank.next("acme", [Step::answers(500, "{}").after(Duration::from_secs(4))]);
    let node = TestNode::start(&scratch, "a", &channel(1)).await;
    scratch.insert("acme", "R-", 3).await;
    until("the third is in flight", async || arrived(&scratch) == 3).await;
    node.daemon.reload(scratch.config("a", &channel(2))).await.unwrap();
    assert_eq!(scratch.count(State::Sending).await, 1, "the bank answered before the reload");
    failed(3).await;
    for nth in 4..=5 {
        scratch.bank.next("acme", [Step::resets()]);
        scratch.insert("acme", &format!("S-{nth}-"), 1).await;
        failed(nth).await;
    }
    // The same file again changes nothing, and is no new beginning.
    node.daemon.reload(scratch.config("a", &channel(2))).await.unwrap();
    assert_eq!(events(&scratch).await, "", "two have failed since");
    scratch.bank.next("acme", [Step::resets()]);
    scratch.insert("acme", "T-", 1).await;
    trips(&scratch).await;
    node.stop().await;
}
