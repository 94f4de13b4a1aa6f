//! A node that has not compared Postgres's clock with another one yet, such as one that starts while Redis is away.

use std::time::Duration;

use refundd::store::{ClaimRequest, ClockWitness, Store};

use crate::harness::Scratch;
use crate::harness::anywhere::{add_address, claim_of, unlimited};

/// An `unknown` refund with these columns, and the store of such a node.
async fn unwitnessed(columns: &str) -> (Scratch, Store) {
    let scratch = Scratch::with_refunds(1).await;
    add_address(&scratch, "acme").await;
    scratch.lease("true", "attempts = 1, first_sent_at = now()").await;
    scratch.release("true", &format!("state = 'unknown', {columns}")).await;
    let store = scratch.store.clone().witnessed_by(ClockWitness::default());
    (scratch, store)
}

#[tokio::test]
async fn a_node_that_has_not_compared_clocks_sends_nothing_again() {
    let (_scratch, store) = unwitnessed("inquire_at = null").await;
    let taken = [unlimited(1)];
    let request = ClaimRequest { resend_within: Some(Duration::from_hours(1)), ..claim_of("a", &taken) };
    assert!(store.claim_among(&request, &[]).await.unwrap().leased.is_empty());
    assert_eq!(store.watch_clock("a#1", None, false).await.unwrap(), None);
    let leased = store.claim_among(&request, &[]).await.unwrap().leased;
    assert_eq!(leased.iter().map(|lease| lease.is_resend).collect::<Vec<_>>(), [true]);
}

#[tokio::test]
async fn a_node_that_has_not_compared_clocks_ends_no_grace() {
    let (scratch, store) = unwitnessed("inquire_at = now()").await;
    let inquiry = async || {
        let long = "inquire_at = now(), uncertain_at = now() - interval '1 hour'";
        scratch.sql(&format!("update refundd.refunds set {long}")).await;
        let mut leased = store.claim_inquiries(&claim_of("a", &[unlimited(1)])).await.unwrap().leased;
        assert_eq!(leased.len(), 1);
        leased.remove(0)
    };
    let before = inquiry().await;
    assert_eq!((before.age, before.uncertain_for), (Duration::ZERO, None));
    assert_eq!(store.watch_clock("a#1", None, false).await.unwrap(), None);
    let about_an_hour = Duration::from_mins(50)..Duration::from_mins(90);
    let after = inquiry().await;
    assert!(after.uncertain_for.is_some_and(|span| about_an_hour.contains(&span)), "{after:?}");
    assert!(about_an_hour.contains(&after.age), "{after:?}");
}
