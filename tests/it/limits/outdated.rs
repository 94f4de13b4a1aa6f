//! Claims that Postgres refuses as outdated: a generation is over, or a permit does not keep its limit's rule.

use std::time::{Duration, Instant};

use refundd::refund::State;

use super::channel;
use crate::harness::{Scratch, TestNode, until, window_lasts};

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

/// A limit of a second and one of a day.
const TWO_LIMITS: &str = "[limit.second]\nalgorithm = \"sliding_log\"\npermits = 20\nper = \"1s\"\n\
    [limit.day]\npermits = 2000\nper = \"1d\"\n\
    [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"second\", \"day\"]\n";

/// Redis counted the permits of both limits, and Postgres spent none.
#[tokio::test]
async fn a_claim_whose_generation_of_one_limit_is_over_costs_a_day_of_another_limit_no_permit() {
    window_lasts(86_400, 60).await;
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", TWO_LIMITS).await;
    scratch.insert("acme", "R-", 3).await;
    until("three are paid", async || scratch.count(State::Succeeded).await == 3).await;
    // As after the reload of another node.
    let next = "update refundd.limits set generation = generation + 1 where limit_name = 'second'";
    assert_eq!(scratch.sql(next).await, 1);
    scratch.insert("acme", "S-", 12).await;
    until("all are paid", async || scratch.count(State::Succeeded).await == 15).await;
    assert!(refused(&node).await > 0, "no claim was refused");
    let skipped = "select max(ordinal) - count(*) from refundd.permits where limit_name = 'day'";
    assert_eq!(scratch.number(skipped).await, 0);
    node.stop().await;
}
