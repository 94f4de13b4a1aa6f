//! Which node restores a count that Redis forgot, when reading the ledger takes long.

use refundd::bucket::{Bucket, End, Take};
use refundd::channel::Channel;
use refundd::limiter::{Forgotten, LedgerCount};

use super::{ids, order, scene};

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
    let limit = "[limit.acme]\nalgorithm = \"sliding_log\"\npermits = 5\nper = \"1m\"\n";
    let (_scratch, bucket, channel) = scene(limit).await;
    bucket.fill(&channel.name, &ids(1..=5), End::Back, 200).await.unwrap();
    let count = |generation, forgotten: &Forgotten| LedgerCount {
        generation,
        server: forgotten.server.clone(),
        told_us: Some(forgotten.now_us),
        ..LedgerCount::default()
    };
    let first = told(&bucket, &channel).await;
    let second = told(&bucket, &channel).await;
    // The first is late, so reading takes long, and the second gets twice that time.
    assert!(!bucket.restore(&first.limit, &count(1, &first)).await.unwrap());
    let third = told(&bucket, &channel).await;
    let (short, long) = (second.now_us - first.now_us, third.now_us - second.now_us);
    assert!(short >= 300_000 && long >= 2 * short, "{short}, {long}");
    // The third has begun a generation, so permits of the others are worthless.
    assert!(!bucket.restore(&first.limit, &count(2, &second)).await.unwrap());
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Denied { .. }));
    assert!(bucket.restore(&first.limit, &count(3, &third)).await.unwrap());
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Granted { .. }));
}

#[tokio::test]
async fn a_node_that_cannot_read_the_ledger_gives_its_time_to_another_node() {
    let limit = "[limit.acme]\nalgorithm = \"sliding_log\"\npermits = 5\nper = \"1m\"\n";
    let (_scratch, bucket, channel) = scene(limit).await;
    bucket.fill(&channel.name, &ids(1..=5), End::Back, 200).await.unwrap();
    let first = told(&bucket, &channel).await;
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Denied { .. }));
    bucket.give_up(&first).await.unwrap();
    let Take::Forgot(second) = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
    // It is the second node's time now.
    bucket.give_up(&first).await.unwrap();
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Denied { .. }));
    assert!(second.now_us > first.now_us);
}
