//! A page of metrics comes before a scraper gives up, and shows what suspends channels now.

use std::time::Duration;

use playground::Weather;
use playground::forward::Forward;
use sqlx::{Connection, Executor};
use tokio::time::timeout;

use super::LIMITED;
use super::channels::node_around;
use super::watch::Watch;
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until};

/// Waits until the page has the gauges of the channel.
async fn is_counted(node: &TestNode) {
    let gauge = "refundd_channel_paused{channel=\"acme\"} 0\n";
    until("the channel is counted", async || node.get("/metrics").await.text.contains(gauge)).await;
}

/// A scraper gives up after ten seconds. Then the node would seem to be gone, and not Postgres.
#[tokio::test]
async fn a_postgres_that_hangs_keeps_no_scraper_waiting() {
    let scratch = Scratch::new().await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    let node = node_around(&scratch, &way, LIMITED).await;
    is_counted(&node).await;
    way.set(Weather::Deaf);
    let page = timeout(Duration::from_secs(9), node.get("/metrics")).await.expect("the page comes").text;
    assert!(page.contains("refundd_postgres_up 0\n"), "{page}");
    way.set(Weather::Fair);
    until("Postgres is back", async || node.get("/metrics").await.text.contains("refundd_postgres_up 1\n"))
        .await;
    node.stop().await;
}

/// Each of the reads would wait for three seconds.
#[tokio::test]
async fn reads_that_wait_for_locks_keep_no_scraper_waiting_one_after_the_other() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    is_counted(&node).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.sealing, refundd.feed, refundd.proposals in access exclusive mode")
        .await
        .unwrap();
    let page = timeout(Duration::from_secs(6), node.get("/metrics")).await.expect("the page comes").text;
    assert!(page.contains("refundd_postgres_up 1\n"), "{page}");
    assert!(!page.contains("refundd_journal_unsealed_seconds "), "{page}");
    lock.rollback().await.unwrap();
    node.stop().await;
}

/// The count waits for the lock, and fails. All else is well.
#[tokio::test]
async fn a_count_that_fails_leaves_the_last_one_on_the_page_with_its_age() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    is_counted(&node).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.attempts in access exclusive mode").await.unwrap();
    // A count is kept for two seconds, and the next one waits three seconds for the lock.
    until("counting has failed", async || {
        let page = node.get("/metrics").await.text;
        assert!(page.contains("refundd_postgres_up 1\n"), "{page}");
        assert!(page.contains("refundd_channel_paused{channel=\"acme\"} 0\n"), "{page}");
        let age = page.lines().find_map(|line| line.strip_prefix("refundd_census_age_seconds "));
        age.is_some_and(|age| age.parse::<f64>().unwrap() > 9.0)
    })
    .await;
    assert_eq!(node.get("/v1/channels").await.status, 200);
    lock.rollback().await.unwrap();
    node.stop().await;
}

/// All else is well, also what suspends channels.
#[tokio::test]
async fn a_node_whose_first_count_fails_rings_and_is_quiet_soon_after_a_count_succeeds() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    scratch.sql("alter function refundd.counts() rename to counts_elsewhere").await;
    let mut watch = Watch::on([&node]);
    watch.fires("RefunddCountsFail").await;
    let page = node.get("/metrics").await.text;
    assert!(page.contains("refundd_postgres_up 1\n"), "{page}");
    scratch.sql("alter function refundd.counts_elsewhere() rename to counts").await;
    watch.is_quiet().await;
    is_counted(&node).await;
    node.stop().await;
}

/// A count is kept for two seconds at least.
#[tokio::test]
async fn a_pause_is_on_the_next_page_although_the_last_count_is_older() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    is_counted(&node).await;
    scratch.pause("acme", "bank closes", "ann").await;
    let page = node.get("/metrics").await.text;
    for gauge in [
        "refundd_channel_paused{channel=\"acme\"} 1\n",
        "refundd_channel_suspended{channel=\"acme\",by=\"person\"} 1\n",
    ] {
        assert!(page.contains(gauge), "{gauge} is missing: {page}");
    }
    node.stop().await;
}

/// A dump holds its snapshot from its first statement to its end.
#[tokio::test]
async fn a_snapshot_that_somebody_holds_is_on_the_page_with_its_time() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", LIMITED).await;
    let held = async || {
        let page = node.get("/metrics").await.text;
        let held = page.lines().find_map(|line| line.strip_prefix("refundd_snapshot_held_seconds "));
        held.map(|held| held.parse::<f64>().unwrap())
    };
    until("nobody holds one", async || held().await.is_some_and(|held| held < 1.0)).await;
    let mut reader = scratch.connect().await;
    reader.execute("begin isolation level repeatable read").await.unwrap();
    reader.execute("select count(*) from refundd.refunds").await.unwrap();
    until("it is held for two seconds", async || held().await.is_some_and(|held| held > 2.0)).await;
    reader.execute("rollback").await.unwrap();
    until("it ends", async || held().await.is_some_and(|held| held < 1.0)).await;
    node.stop().await;
}
