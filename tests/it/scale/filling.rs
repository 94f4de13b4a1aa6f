//! What a fill adds to a bucket whose ids leave it fast.

use std::sync::Arc;

use refundd::bucket::{End, Purpose};
use refundd::feeder::Feeder;
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::wake_up::WakeUps;

use super::acme;
use crate::harness::{Scratch, depth, until};

const CAPACITY: u32 = 100;

/// Otherwise a fast channel is without ids until the feeder's next pass.
#[tokio::test]
async fn a_bucket_is_filled_up_while_the_claims_of_its_first_ids_are_under_way() {
    let scratch = Scratch::with_refunds(250).await;
    let bucket = scratch.bucket();
    let due = scratch.store.due(&acme(), CAPACITY).await.unwrap();
    bucket.fill(&acme(), &due, End::Back, CAPACITY).await.unwrap();
    let (taken, left) = bucket.more(&acme(), 60).await.unwrap();
    assert_eq!((taken.len(), left), (60, 40));
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    let wake_ups = WakeUps::of_sends(CAPACITY);
    wake_ups.nudge(&acme());
    let feeder = tokio::spawn(Feeder::new(node.clone(), wake_ups).run());
    let is_full = async || depth(&bucket, Purpose::Send, &acme()).await == u64::from(CAPACITY);
    until("the bucket is full", is_full).await;
    node.stop.cancel();
    feeder.await.unwrap();
}
