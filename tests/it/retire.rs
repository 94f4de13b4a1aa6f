//! Channels that no node runs are retired, and come back with the node that runs them.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::recovery::{Keep, Recovery};
use refundd::refund::State;
use refundd::wake_up::WakeUps;

use crate::dispatch::UNLIMITED;
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, until};

#[tokio::test]
async fn a_node_that_was_taken_for_dead_brings_its_channels_back() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    until("the node named its channels", async || {
        scratch.number("select count(*) from refundd.nodes where 'acme' = any(channels)").await == 1
    })
    .await;
    // What a leader does after the node could not reach Postgres for a minute and more.
    scratch
        .sql("with dead as (delete from refundd.nodes) update refundd.channels set retired_at = now(), published_at = now() - interval '1 hour'")
        .await;
    until("the channel is run again", async || {
        scratch.number("select count(*) from refundd.channels where retired_at is null").await == 1
    })
    .await;
    assert_eq!(node.post("/v1/refunds", &refund("R-1", "acme")).await.status, StatusCode::CREATED);
    node.stop().await;
}

/// The housekeeping of node `a`. Node `b` alone runs the channel, and its last heartbeat was then.
async fn housekeeping_beside(scratch: &Scratch, seen_at: &str) -> Recovery {
    scratch.publish("acme").await;
    scratch.sql("update refundd.channels set published_at = now() - interval '1 hour'").await;
    scratch
        .sql(&format!(
            "insert into refundd.nodes (node, version, channels, config_digest, seen_at) values ('b#1', '0', '{{acme}}', 'd', {seen_at})"
        ))
        .await;
    let node = Node::new("a", scratch.store.clone(), scratch.bucket(), Arc::new(Metrics::default()));
    let keep = Keep { permits: Duration::from_hours(168), attempts: None, events: None };
    Recovery::new(node, WakeUps::of_sends(100), keep)
}

/// Ten for each node with a row, and one for each channel that is not retired.
const JUDGED: &str = "select (select count(*) from refundd.nodes) * 10 + count(*) from refundd.channels where retired_at is null";

#[tokio::test]
async fn a_leading_node_that_was_cut_off_takes_no_node_for_dead_until_it_could_read_new_heartbeats() {
    let scratch = Scratch::new().await;
    // All nodes were cut off from Postgres for two minutes; this one is the first to be back.
    let mut recovery = housekeeping_beside(&scratch, "now() - interval '2 minutes'").await;
    recovery.keep_house(Duration::from_secs(1)).await.unwrap();
    assert_eq!(scratch.number(JUDGED).await, 11, "nothing is judged by a leader that is just back");
    recovery.keep_house(Duration::from_mins(1)).await.unwrap();
    assert_eq!(scratch.number(JUDGED).await, 0, "what is really gone is retired");
}

/// Postgres's clock was set back. The other node died before that, or it has not written its row since.
#[tokio::test]
async fn a_node_whose_row_is_ahead_of_the_clock_is_forgotten_unless_it_writes_the_row_again() {
    let scratch = Scratch::new().await;
    let mut recovery = housekeeping_beside(&scratch, "now() + interval '1 hour'").await;
    let led_for = Duration::from_mins(1);
    recovery.keep_house(led_for).await.unwrap();
    assert_eq!(scratch.number(JUDGED).await, 11, "it has time to write its row again");
    let dead = "select count(*) from refundd.nodes where seen_at < now() - interval '4 seconds'";
    assert_eq!(scratch.number(dead).await, 1, "and counts as dead meanwhile");
    scratch.sql("update refundd.nodes set seen_at = seen_at - interval '1 minute'").await;
    recovery.keep_house(led_for).await.unwrap();
    assert_eq!(scratch.number(JUDGED).await, 0, "it did not");
    let why = scratch.text("select reason from refundd.events where kind = 'node_left'").await;
    assert_eq!(why, "it was not seen any more");
}

/// People still find what became of its refunds.
#[tokio::test]
async fn a_retired_channel_whose_refunds_ended_leaves_the_metrics_and_stays_among_the_channels() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 1).await;
    until("the refund is sent", async || scratch.count(State::Succeeded).await == 1).await;
    node.stop().await;
    scratch.sql("update refundd.channels set retired_at = now()").await;
    let node = TestNode::start(&scratch, "b", &UNLIMITED.replace("channel.acme", "channel.globex")).await;
    let mut page = String::new();
    until("the other channel is counted", async || {
        page = node.get("/metrics").await.text;
        page.contains("refundd_refunds{channel=\"globex\"")
    })
    .await;
    assert!(!page.contains("channel=\"acme\""), "{page}");
    let channels = node.get("/v1/channels").await.text;
    assert!(channels.contains("\"acme\""), "{channels}");
    node.stop().await;
}

#[tokio::test]
async fn a_reload_without_a_channel_ends_its_counters_and_a_reload_with_it_begins_them_at_zero() {
    let scratch = Scratch::new().await;
    let other = UNLIMITED.replace("channel.acme", "channel.globex");
    let both = format!("{UNLIMITED}{other}");
    let node = TestNode::start(&scratch, "a", &both).await;
    scratch.insert("acme", "R-", 1).await;
    let counts = async |channel: &str, count: &str| {
        let counter =
            format!("refundd_attempts_total{{channel=\"{channel}\",outcome=\"succeeded\"}} {count}");
        node.get("/metrics").await.text.contains(&counter)
    };
    until("both are counted", async || counts("acme", "1\n").await && counts("globex", "0\n").await).await;
    node.daemon.reload(scratch.config("a", &other)).await.unwrap();
    assert!(!counts("acme", "").await && counts("globex", "0\n").await);
    node.daemon.reload(scratch.config("a", &both)).await.unwrap();
    until("the channel's worker begins anew", async || counts("acme", "0\n").await).await;
    node.stop().await;
}
