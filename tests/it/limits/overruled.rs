//! A node with the old file beside a node with the new one, whose rule is the stricter.

use std::time::{Duration, Instant};

use playground::bank::Step;
use refundd::refund::State;

use super::channel;
use crate::harness::{NodeProcess, Scratch, TestNode, until};

/// The old node logs this at each refusal, which makes Redis forget the limit for both nodes.
const REFUSED: &str = "the ledger refused permits that Redis granted under a stricter rule";

/// The new rule has the lower rate, and lets far more through in a second. So the node with the old file is soon at the end of its own
/// rule, which bounds what it spends of the new window.
#[tokio::test]
async fn a_node_with_the_old_file_spends_hardly_a_permit_of_the_new_window_in_vain_and_seldom_asks_for_one() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays().after(Duration::from_millis(50)));
    let few = |channels: String| channels.replace("max_in_flight = 50", "max_in_flight = 8");
    let old = NodeProcess::start(&scratch, "old", &few(channel("permits = 20")));
    let daily = channel("permits = 100000").replace("\"1s\"", "\"1d\"");
    let new = TestNode::start(&scratch, "new", &few(daily)).await;
    let began = Instant::now();
    scratch.insert("acme", "R-", 1_000).await;
    let refusals = || old.log().iter().filter(|line| line.contains(REFUSED)).count();
    until("the old node is at the end of its own rule", async || refusals() > 0).await;
    until("all are paid", async || scratch.count(State::Succeeded).await == 1_000).await;
    let sent = i64::try_from(scratch.bank.look(|l| l.all().len())).unwrap();
    let spent = scratch.number("select count(*) from refundd.permits").await;
    // Two claims at one moment do not see each other. Each such meeting costs eight permits at most, and the old node then waits for 3 s.
    let took = began.elapsed();
    let most = 40 + 4 * i64::try_from(took.as_secs()).unwrap();
    assert!(spent - sent <= most, "{spent} permits spent, {sent} requests sent in {took:?}");
    // The wait is 2.25 s at least. Two more are for the beginning, when the rule in effect changes.
    let (refusals, most) = (refusals(), 3 + took.as_millis() / 2_250);
    assert!(u128::try_from(refusals).unwrap() <= most, "refused {refusals} times in {took:?}");
    new.stop().await;
}
