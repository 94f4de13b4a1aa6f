//! A database that was restored from a backup, while Redis kept generations that the backup does not know.

use std::time::Duration;

use futures_util::future::join_all;
use playground::PrivateRedis;

use super::channel;
use crate::harness::{Scratch, TestNode};

/// More generations than restoring alone makes up for.
const NEWER: i64 = 1_000_000;

/// Sends ten refunds more.
async fn sends(scratch: &Scratch, refs: &str, after: &str) {
    let before = scratch.bank.look(|l| l.all().len());
    scratch.insert("acme", refs, 10).await;
    let arrived = scratch.bank.until(Duration::from_mins(1), |l| l.all().len() >= before + 10).await;
    assert!(arrived, "nothing goes after {after}");
}

/// Brings Redis to generations that the ledger then does not know.
async fn database_goes_back(scratch: &Scratch, refs: &str, after: &str) {
    scratch.sql(&format!("update refundd.limits set generation = generation + {NEWER}")).await;
    sends(scratch, refs, after).await;
    scratch.sql(&format!("update refundd.limits set generation = generation - {NEWER}")).await;
}

#[tokio::test]
async fn a_newer_generation_in_redis_stops_nothing_when_its_count_is_unusable() {
    let rules =
        ["permits = 20", "algorithm = \"paced\"\npermits = 20", "algorithm = \"sliding_log\"\npermits = 20"];
    join_all(rules.map(async |rule| {
        let redis = PrivateRedis::start().await.unwrap();
        let scratch = Scratch::with_redis(redis.url()).await;
        let node = TestNode::start(&scratch, "a", &channel(rule)).await;
        sends(&scratch, "first-", &format!("the start: {rule}")).await;

        database_goes_back(&scratch, "ahead-", &format!("the ledger went forward: {rule}")).await;
        let kept = redis.snapshot().await.unwrap();
        redis.kill_hard().await.unwrap();
        redis.restart(Some(&kept)).await.unwrap();
        sends(&scratch, "restarted-", &format!("Redis was restarted: {rule}")).await;

        database_goes_back(&scratch, "again-", &format!("the ledger went forward once more: {rule}")).await;
        node.stop().await;
        let lowered = rule.replace("permits = 20", "permits = 10");
        let node = TestNode::start(&scratch, "a", &channel(&lowered)).await;
        sends(&scratch, "lowered-", &format!("`permits` was lowered: {rule}")).await;
        node.stop().await;
    }))
    .await;
}
