//! A reload changes the channel while its bank fails.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::{ChannelName, State};
use refundd::store::OwnSuspension;

use super::{NEVER_PROBED, PROBED, arrived, events, one_by_one, trips};
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
    scratch.bank.next("acme", [Step::answers(500, "{}").after(Duration::from_secs(6))]);
    let node = TestNode::start(&scratch, "a", &channel(1)).await;
    scratch.insert("acme", "R-", 3).await;
    until("the third is in flight", async || arrived(&scratch) == 3).await;
    failed(2).await;
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

/// The next probe was planned for in an hour.
#[tokio::test]
async fn a_lower_probe_holds_from_the_reload_on() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", std::iter::repeat_n(Step::rejects(), 5));
    let node = TestNode::start(&scratch, "a", &one_by_one(NEVER_PROBED)).await;
    scratch.insert("acme", "R-", 20).await;
    trips(&scratch).await;
    node.daemon.reload(scratch.config("a", &one_by_one(PROBED))).await.unwrap();
    until("the rest is paid", async || scratch.count(State::Succeeded).await == 15).await;
    assert_eq!(events(&scratch).await, "breaker_tripped breaker_ended");
    node.stop().await;
}

/// As after a step of Postgres's clock back by an hour.
#[tokio::test]
async fn a_probe_that_is_planned_too_late_is_due_for_one_node() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let (acme, store) = (ChannelName::new("acme").unwrap(), &scratch.store);
    let own =
        OwnSuspension::Breaker { kind: "rejected", probe: Duration::from_hours(1), age: Duration::ZERO };
    assert!(store.suspend(&acme, own, "it failed", "a#1").await.unwrap());
    let reserves =
        async |node: &str, probe: Duration| store.reserve_probe(&acme, node, probe).await.unwrap().is_some();
    assert!(!reserves("a#1", Duration::from_hours(1)).await, "it is planned as it should be");
    assert!(reserves("a#1", Duration::from_mins(1)).await);
    assert!(!reserves("b#1", Duration::from_mins(1)).await, "the other node has it");
}
