//! Which node restores a count that Redis forgot, when reading the ledger takes long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::{Bucket, End, Take};
use refundd::channel::Channel;
use refundd::limiter::{Forgotten, LedgerCount};
use refundd::node::Node;
use sqlx::{Connection, Executor};

use super::forged::now_us;
use super::{ids, order, scene};
use crate::harness::{Scratch, until};

/// A limit that Redis forgot, and refunds that want its permits.
async fn forgotten_limit() -> (Scratch, Bucket, Arc<Channel>) {
    let limit = "[limit.acme]\nalgorithm = \"sliding_log\"\npermits = 5\nper = \"1m\"\n";
    let (scratch, bucket, channel) = scene(limit).await;
    bucket.fill(&channel.name, &ids(1..=5), End::Back, 200).await.unwrap();
    (scratch, bucket, channel)
}

/// The ledger's count for the node that was told so to restore it: nothing is spent.
fn count(generation: i64, forgotten: &Forgotten) -> LedgerCount {
    LedgerCount {
        generation,
        server: forgotten.server.clone(),
        asked_to_restore_us: Some(forgotten.now_us),
        ..LedgerCount::default()
    }
}

/// After so long without a word from the node that restores the count, another node may, in us.
const SILENT_US: i64 = 2_500_000;

/// Waits until a node is told to restore the count.
async fn told(bucket: &Bucket, channel: &Channel) -> Forgotten {
    loop {
        match bucket.take(channel, order(1, 1)).await.unwrap() {
            Take::Forgot(forgotten) => return forgotten,
            Take::Denied { wait, .. } => tokio::time::sleep(wait.span).await,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_node_that_reads_the_ledger_slowly_does_not_restore_what_another_node_restores_by_now() {
    let (_scratch, bucket, channel) = forgotten_limit().await;
    let first = told(&bucket, &channel).await;
    let second = told(&bucket, &channel).await;
    // The first is late, so reading takes long, and the second gets twice that time.
    assert!(!bucket.restore(&first.limit, &count(1, &first)).await.unwrap());
    let third = told(&bucket, &channel).await;
    let (short, long) = (second.now_us - first.now_us, third.now_us - second.now_us);
    // The second is silent, so on a slow machine its time ends before that.
    assert!(short >= 300_000 && long >= (2 * short).min(SILENT_US), "{short}, {long}");
    // The third has begun a generation, so permits of the others are worthless.
    assert!(!bucket.restore(&first.limit, &count(2, &second)).await.unwrap());
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Denied { .. }));
    assert!(bucket.restore(&first.limit, &count(3, &third)).await.unwrap());
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Granted { .. }));
}

#[tokio::test]
async fn a_node_that_cannot_read_the_ledger_gives_its_time_to_another_node() {
    let (_scratch, bucket, channel) = forgotten_limit().await;
    let first = told(&bucket, &channel).await;
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Denied { .. }));
    bucket.give_up(&first).await.unwrap();
    let Take::Forgot(second) = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
    // It is the second node's time now.
    bucket.give_up(&first).await.unwrap();
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Denied { .. }));
    assert!(second.now_us > first.now_us);
}

#[tokio::test]
async fn a_node_restores_alone_only_for_as_long_as_it_says_so() {
    let (scratch, bucket, channel) = forgotten_limit().await;
    let first = told(&bucket, &channel).await;
    // A node whose reading took 6 s is late. From now on the node that is told last may restore alone for 10 s.
    let late = Forgotten { now_us: first.now_us - 6_000_000, ..first.clone() };
    assert!(!bucket.restore(&late.limit, &count(1, &late)).await.unwrap());
    // The first one says nothing, and words of the late one count for nothing.
    let second = loop {
        bucket.still(&late).await.unwrap();
        match bucket.take(&channel, order(1, 1)).await.unwrap() {
            Take::Forgot(second) => break second,
            Take::Denied { wait, .. } => tokio::time::sleep(wait.span).await,
            other => panic!("{other:?}"),
        }
    };
    let silent = second.now_us - first.now_us;
    assert!((SILENT_US..5_000_000).contains(&silent), "another node may restore after {silent} us");
    let mut connection = scratch.redis().await;
    while now_us(&mut connection).await < second.now_us + 4_000_000 {
        bucket.still(&second).await.unwrap();
        let taken = bucket.take(&channel, order(1, 1)).await.unwrap();
        assert!(matches!(taken, Take::Denied { .. }), "the second one lives, and has 10 s: {taken:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(bucket.restore(&second.limit, &count(2, &second)).await.unwrap());
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Granted { .. }));
}

#[tokio::test]
async fn a_node_that_waits_for_the_ledger_says_again_and_again_that_it_restores() {
    let (scratch, bucket, channel) = forgotten_limit().await;
    let node = Node::new("a", scratch.store.clone(), bucket.clone(), Arc::default());
    let forgotten = told(&bucket, &channel).await;
    let mut holder = scratch.connect().await;
    let mut lock = holder.begin().await.unwrap();
    lock.execute("lock table refundd.limits").await.unwrap();
    let mut connection = scratch.redis().await;
    let key = format!("{}:{{acme}}:limit", scratch.key_prefix());
    let free = async {
        let mut heard = BTreeSet::new();
        // The node waits for the lock for three seconds.
        until("it says so a second time", async || {
            let at: Option<i64> =
                redis::cmd("HGET").arg(&key).arg("heard").query_async(&mut connection).await.unwrap();
            heard.extend(at);
            heard.len() == 2
        })
        .await;
        lock.rollback().await.unwrap();
    };
    let (restored, ()) = tokio::join!(node.restore(&forgotten, true), free);
    restored.unwrap();
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Granted { .. }));
}
