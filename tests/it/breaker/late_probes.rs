//! A probe that is answered late.

use std::time::Duration;

use playground::bank::Step;
use refundd::refund::{ChannelName, State};
use refundd::store::{OwnSuspension, SuspendedBy};

use super::{NEVER_PROBED, arrived, events, one_by_one, trips};
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn a_success_ends_the_suspension_although_another_node_has_reserved_the_next_probe() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", std::iter::repeat_n(Step::rejects(), 5));
    scratch.bank.next("acme", [Step::pays().after(Duration::from_secs(2))]);
    let node = TestNode::start(&scratch, "a", &one_by_one(NEVER_PROBED)).await;
    scratch.insert("acme", "R-", 20).await;
    trips(&scratch).await;
    scratch.sql("update refundd.suspensions set probe_at = now()").await;
    until("the probe is in flight", async || arrived(&scratch) == 6).await;
    let by_another = "update refundd.suspensions
        set probe_by = 'b#1', probe_until = now() + interval '1 hour', probe_at = now() + interval '1 hour'";
    scratch.sql(by_another).await;
    until("the rest is paid", async || scratch.count(State::Succeeded).await == 15).await;
    assert_eq!(events(&scratch).await, "breaker_tripped breaker_ended");
    node.stop().await;
}

#[tokio::test]
async fn a_success_ends_no_suspension_that_began_after_its_own() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let (acme, store) = (ChannelName::new("acme").unwrap(), &scratch.store);
    let trip = async || {
        let own = OwnSuspension::Breaker { kind: "rejected", probe: Duration::ZERO, age: Duration::ZERO };
        assert!(store.suspend(&acme, own, "it failed", "a#1").await.unwrap());
        store.reserve_probe(&acme, "a#1", Duration::from_mins(1)).await.unwrap().expect("a probe is due")
    };
    let first = trip().await;
    store.release("acme", SuspendedBy::Breaker, "ann", None).await.unwrap();
    let second = trip().await;
    assert!(!store.end_breaker(&acme, "a#1", first).await.unwrap());
    assert!(store.end_breaker(&acme, "a#1", second).await.unwrap());
}
