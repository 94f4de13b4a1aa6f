//! Claims that Postgres refuses as outdated: a generation is over, or a permit does not keep its limit's rule.

use std::time::{Duration, Instant};

use super::channel;
use crate::harness::{Scratch, TestNode, until};

/// How many permits of the channel the node says that such claims wasted.
async fn refused(node: &TestNode) -> u64 {
    let page = node.get("/metrics").await.text;
    let wasted = "refundd_permits_unused_total{channel=\"acme\",reason=\"outdated\"} ";
    page.lines().find_map(|line| line.strip_prefix(wasted)?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_node_whose_claims_are_all_refused_waits_between_two_of_them() {
    let scratch = Scratch::new().await;
    let one_by_one = channel("permits = 1000").replace("max_in_flight = 50", "max_in_flight = 1");
    let node = TestNode::start(&scratch, "a", &one_by_one).await;
    scratch
        .sql(
            "create or replace function refundd.permits_keep_rules(limits text[], own_rules text[], stricter_rules text[],
                 names text[], windows bigint[], ordinals integer[], apart bigint) returns boolean
                 language sql volatile return false",
        )
        .await;
    scratch.insert("acme", "R-", 2_000).await;
    until("two claims are refused", async || refused(&node).await >= 2).await;
    let (before, began) = (refused(&node).await, Instant::now());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (claims, took) = (refused(&node).await - before, began.elapsed());
    // The wait is 37.5 ms at least.
    assert!(u128::from(claims) <= took.as_millis() / 37 + 2, "{claims} claims in {took:?}");
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 0);
    node.stop().await;
}
