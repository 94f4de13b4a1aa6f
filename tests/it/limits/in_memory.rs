//! Limits that nodes count in their own memory: a single node without Redis, and nodes with a share each.

use std::time::{Duration, Instant};

use playground::judge::{JudgedPeriod, judge};
use playground::rule::{TestAlgorithm, TestRule};
use refundd::refund::State;

use super::{channel, fullest_span, rate};
use crate::harness::{NodeProcess, Scratch, TestNode, until};

const IN_MEMORY: &str = "[bucket]\nkind = \"memory\"\n";

#[tokio::test]
async fn a_single_node_without_redis_keeps_every_kind_of_limit() {
    for algorithm in TestAlgorithm::ALL {
        let rule = TestRule { permits: 20, ..TestRule::usual(algorithm) };
        let promise = rule.promise();
        let rule = rule.settings();
        let mut scratch = Scratch::new().await;
        scratch.redis_url = "redis://127.0.0.1:1".to_owned();
        let node = TestNode::start(&scratch, "a", &format!("{IN_MEMORY}{}", channel(&rule))).await;
        scratch.insert("acme", "R-", 60).await;
        let done = scratch.bank.until(Duration::from_secs(15), |l| l.all().len() >= 50).await;
        assert!(done, "{rule}: {}", scratch.bank.look(|l| l.all().len()));
        let times: Vec<i64> =
            scratch.bank.look(|l| l.arrivals("acme").map(|arrival| arrival.at_us).collect());
        let judged = judge(&times, &JudgedPeriod::always(promise));
        let above = judged.iter().find(|judged| judged.is_above());
        assert!(above.is_none(), "{rule}: {above:?}");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_node_in_memory_that_is_started_again_goes_on_where_the_ledger_says() {
    let scratch = Scratch::new().await;
    for rule in ["permits = 5", "algorithm = \"sliding_log\"\npermits = 5"] {
        let name = if rule.contains("log") { "log" } else { "window" };
        let file = format!("{IN_MEMORY}{}", channel(rule).replace("acme", name).replace("\"1s\"", "\"1h\""));
        for _ in 0..3 {
            let node = TestNode::start(&scratch, "a", &file).await;
            scratch.insert(name, &format!("{name}-{}-", fastrand::u32(..)), 4).await;
            let spent = format!("select count(*) from refundd.permits where limit_name = '{name}'");
            until("it takes what is left", async || scratch.number(&spent).await >= 4).await;
            node.stop().await;
        }
        let sent = scratch.bank.look(|l| l.arrivals(name).count());
        assert!(sent <= 5, "{sent} of 5 an hour, by a node that was started three times");
    }
}

#[tokio::test]
async fn beside_a_node_in_memory_no_second_one_starts() {
    let scratch = Scratch::new().await;
    let first = TestNode::start(&scratch, "first", &format!("{IN_MEMORY}{}", channel("permits = 5"))).await;
    for kind in [IN_MEMORY, ""] {
        let file = scratch.config("second", &format!("{kind}{}", channel("permits = 5")));
        let error = refundd::daemon::Daemon::start(file, || {}).await.unwrap_err().to_string();
        assert!(error.contains("node first#") && error.contains("cannot be shared"), "{error}");
    }
    first.stop().await;
    let next = TestNode::start(&scratch, "next", &channel("permits = 5")).await;
    next.stop().await;
}

/// It died while Postgres's clock was ahead. But it might live, and not have written its row since the clock was set back.
#[tokio::test]
async fn beside_a_row_in_memory_that_is_ahead_of_the_clock_a_node_starts_when_nobody_writes_it_again() {
    let scratch = Scratch::new().await;
    scratch
        .sql(
            "insert into refundd.nodes (node, version, channels, config_digest, bucket, seen_at)
             values ('dead#1', '0', '{acme}', 'd', 'memory', now() + interval '1 hour')",
        )
        .await;
    let began = Instant::now();
    let node = TestNode::start(&scratch, "next", &format!("{IN_MEMORY}{}", channel("permits = 5"))).await;
    // A living node writes its row every second.
    assert!(began.elapsed() > Duration::from_secs(5), "it waited for {:?}", began.elapsed());
    scratch.insert("acme", "R-", 1).await;
    until("the refund is sent", async || scratch.count(State::Succeeded).await == 1).await;
    node.stop().await;
}

#[tokio::test]
async fn nodes_that_count_their_shares_alone_never_pass_the_whole_together() {
    let scratch = Scratch::new().await;
    let rule = "algorithm = \"sliding_log\"\npermits = 21\nplacement = \"local_share\"\nnodes = 2";
    let a = TestNode::start(&scratch, "a", &channel(rule)).await;
    let b = TestNode::start(&scratch, "b", &channel(rule)).await;
    let extra = TestNode::start(&scratch, "extra", &channel(rule)).await;
    scratch.insert("acme", "R-", 120).await;
    assert!(scratch.bank.until(Duration::from_secs(20), |l| l.all().len() >= 90).await);
    assert!(fullest_span(&scratch) <= 20, "{}", fullest_span(&scratch));
    assert!(rate(&scratch) > 12.0, "{}", rate(&scratch));
    let holders =
        "select count(distinct (limit_name, node)) from refundd.permits where limit_name like 'acme.share%'";
    assert_eq!(scratch.number(holders).await, 2, "two shares, each counted by one node");
    // A node that leaves makes room for the third.
    a.stop().await;
    until("the third took the share", async || {
        scratch.number("select count(distinct node) from refundd.permits").await == 3
    })
    .await;
    assert!(fullest_span(&scratch) <= 20, "{}", fullest_span(&scratch));
    b.stop().await;
    extra.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_for_which_no_share_is_left_says_so() {
    let scratch = Scratch::new().await;
    let rule = channel("permits = 20\nplacement = \"local_share\"\nnodes = 1");
    let node = TestNode::start(&scratch, "a", &rule).await;
    scratch.insert("acme", "first-", 1).await;
    until("the first node has the share", async || scratch.count(State::Succeeded).await == 1).await;
    let extra = NodeProcess::start(&scratch, "extra", &rule);
    extra.wait_for_line("Other nodes count all 1 shares of limit `acme`; this one sends nothing under it");
    scratch.insert("acme", "R-", 5).await;
    until("the other node sends", async || scratch.count(State::Succeeded).await == 6).await;
    assert_eq!(scratch.number("select count(*) from refundd.permits where node like 'extra%'").await, 0);
    node.stop().await;
}
