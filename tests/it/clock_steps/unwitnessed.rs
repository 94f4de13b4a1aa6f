//! A node that has not compared Postgres's clock with another one yet, such as one that starts while Redis is away.

use std::time::Duration;

use refundd::store::{ClaimRequest, ClockWitness};

use crate::harness::Scratch;
use crate::harness::anywhere::{add_address, claim_of, unlimited};

#[tokio::test]
async fn a_node_that_has_not_compared_clocks_sends_nothing_again() {
    let scratch = Scratch::with_refunds(1).await;
    add_address(&scratch, "acme").await;
    scratch.lease("true", "attempts = 1, first_sent_at = now()").await;
    scratch.release("true", "state = 'unknown'").await;
    let store = scratch.store.clone().witnessed_by(ClockWitness::default());
    let taken = [unlimited(1)];
    let request = ClaimRequest { resend_within: Some(Duration::from_hours(1)), ..claim_of("a", &taken) };
    assert!(store.claim_among(&request, &[]).await.unwrap().leased.is_empty());
    assert_eq!(store.watch_clock("a#1", None, false).await.unwrap(), None);
    let leased = store.claim_among(&request, &[]).await.unwrap().leased;
    assert_eq!(leased.iter().map(|lease| lease.is_resend).collect::<Vec<_>>(), [true]);
}
