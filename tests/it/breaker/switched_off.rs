//! A node that starts ends the suspensions of breakers that its file switches off, while its loops run.

use std::time::Duration;

use refundd::refund::State;
use tokio::time::timeout;

use super::{NEVER_PROBED, one_by_one};
use crate::harness::{Scratch, TestNode, until};

/// When the statement began that waits for the lock; 0 if none waits.
const WAITS_SINCE: &str =
    "select coalesce(min((extract(epoch from query_start) * 1000000)::bigint), 0) from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like '%the configuration switches the breaker off%'";

/// A node that starts switches breakers off, too. Neither its loops nor its readiness wait for that.
#[tokio::test]
async fn a_start_does_not_wait_until_breakers_are_switched_off() {
    let scratch = Scratch::new().await;
    let mut other = scratch.connect().await;
    sqlx::raw_sql("begin; lock table refundd.suspensions in share mode").execute(&mut other).await.unwrap();
    let node = TestNode::start(&scratch, "a", &one_by_one("\"off\"")).await;
    until("it runs and waits for the lock", async || scratch.number(WAITS_SINCE).await > 0).await;
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    scratch.insert("acme", "R-", 1).await;
    until("the refund is paid", async || scratch.count(State::Succeeded).await == 1).await;
    node.stop().await;
}

/// The new breaker may trip at once. A statement of the old file that still waits would end its suspension.
#[tokio::test]
async fn a_reload_that_turns_a_breaker_on_waits_for_the_start_that_switches_it_off() {
    let scratch = Scratch::new().await;
    let mut other = scratch.connect().await;
    sqlx::raw_sql("begin; lock table refundd.suspensions in share mode").execute(&mut other).await.unwrap();
    let node = TestNode::start(&scratch, "a", &one_by_one("\"off\"")).await;
    until("it runs and waits for the lock", async || scratch.number(WAITS_SINCE).await > 0).await;
    let first = scratch.number(WAITS_SINCE).await;
    let mut reload = Box::pin(node.daemon.reload(scratch.config("a", &one_by_one(NEVER_PROBED))));
    let early = timeout(Duration::from_millis(500), &mut reload).await;
    assert!(early.is_err(), "the reload has breakers to switch off itself, and did not wait: {early:?}");
    let is_in_force = node.daemon.config().channels.values().any(|channel| channel.breaker.is_some());
    // On a slow machine the first statement may have given up meanwhile. Then nothing holds the reload up.
    let is_first = scratch.number(WAITS_SINCE).await == first;
    assert!(
        !(is_first && is_in_force),
        "the new file is in force, and a statement of the old one still waits"
    );
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    reload.await.unwrap();
    assert!(node.daemon.config().channels.values().any(|channel| channel.breaker.is_some()));
    node.stop().await;
}
