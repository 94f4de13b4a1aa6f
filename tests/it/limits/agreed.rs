//! What a node tells of another node's stricter rule ends with that rule, also while nothing is taken.

use std::time::Duration;

use super::channel;
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

/// Whether the metrics of the loose node, and its report, say that its rule is overruled.
async fn tells(scratch: &Scratch, loose: &TestNode) -> (bool, bool) {
    let metrics = loose.get("/metrics").await.text;
    let report = "select count(*) from refundd.nodes where standing #>> '{overruled,acme}' is not null";
    (metrics.contains("refundd_limit_overruled{limit=\"acme\"} 1\n"), scratch.number(report).await == 1)
}

/// A node whose rule another node's file overruled, and that other node. Their channel is paused: they take nothing.
async fn overruled_and_idle(scratch: &Scratch) -> (TestNode, TestNode) {
    let loose = TestNode::start(scratch, "loose", &channel("permits = 100")).await;
    let strict = TestNode::start(scratch, "strict", &channel("permits = 10")).await;
    scratch.insert("acme", "R-", 2_000).await;
    until("the loose node tells of it", async || tells(scratch, &loose).await == (true, true)).await;
    scratch.pause("acme", "test", "test").await;
    until("nothing is sent any more", async || {
        let before = scratch.bank.look(|l| l.all().len());
        tokio::time::sleep(Duration::from_millis(1500)).await;
        scratch.bank.look(|l| l.all().len()) == before
    })
    .await;
    assert_eq!(tells(scratch, &loose).await, (true, true), "the files still differ");
    (loose, strict)
}

#[tokio::test]
async fn when_files_agree_again_an_idle_channel_is_not_said_to_be_overruled() {
    let scratch = Scratch::new().await;
    let (loose, strict) = overruled_and_idle(&scratch).await;
    loose.daemon.reload(scratch.config("loose", &channel("permits = 10"))).await.unwrap();
    until("the loose node tells no more of it", async || tells(&scratch, &loose).await == (false, false))
        .await;
    let channels = loose.get("/v1/channels").await.json();
    assert!(channels["channels"][0]["limits"][0]["overruled_by"].is_null(), "{channels}");
    loose.stop().await;
    strict.stop().await;
}

#[tokio::test]
async fn a_limit_that_is_gone_from_the_file_is_not_said_to_be_overruled() {
    let scratch = Scratch::new().await;
    let (loose, strict) = overruled_and_idle(&scratch).await;
    loose.daemon.reload(scratch.config("loose", UNLIMITED)).await.unwrap();
    until("the loose node tells no more of it", async || tells(&scratch, &loose).await == (false, false))
        .await;
    loose.stop().await;
    strict.stop().await;
}
