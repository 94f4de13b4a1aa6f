//! A `token_bucket` that the ledger restores. The ledger shows what was spent in the last `per`, and not how full the bucket was.

use std::time::Duration;

use refundd::bucket::{End, Take};
use refundd::limiter::{LedgerCount, SpentGroup};

use super::{ids, order, scene};

/// Restores a bucket of which so many permits were spent, each so many seconds ago. Returns how many permits it grants at once, and
/// the wait for the next one.
async fn restored(burst: u32, permits: u32, spent: &[(i64, i64)]) -> (usize, Duration) {
    let limit = format!(
        "[limit.acme]\nalgorithm = \"token_bucket\"\nburst = {burst}\npermits = {permits}\nper = \"1m\"\n"
    );
    let (_scratch, bucket, channel) = scene(&limit).await;
    bucket.fill(&channel.name, &ids(1..=200), End::Back, 200).await.unwrap();
    let Take::Forgot(forgotten) = bucket.take(&channel, order(200, 1)).await.unwrap() else { panic!() };
    let past = |&(ago, count): &(i64, i64)| SpentGroup {
        at_us: forgotten.now_us - ago * 1_000_000,
        count,
        over_us: None,
    };
    let history = spent.iter().map(past).collect();
    let count =
        LedgerCount { generation: 1, server: forgotten.server.clone(), history, ..LedgerCount::default() };
    bucket.restore(&forgotten.limit, &count).await.unwrap();
    let mut granted = 0;
    loop {
        match bucket.take(&channel, order(200, 1)).await.unwrap() {
            Take::Granted { taken, .. } => granted += taken.len(),
            Take::Denied { wait, .. } => return (granted, wait.span),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_permit_in_the_ledger_shows_that_there_was_a_token_for_it() {
    let (granted, wait) = restored(1, 1, &[(50, 1)]).await;
    assert!(granted == 0 && wait < Duration::from_secs(11), "{granted}, {wait:?}");
    assert_eq!(restored(5, 10, &[(59, 1)]).await.0, 5, "it had time to fill");
}

#[tokio::test]
async fn of_a_large_store_no_more_is_left_than_the_ledger_proves() {
    assert_eq!(restored(100, 10, &[]).await.0, 10);
    assert_eq!(restored(100, 10, &[(30, 7)]).await.0, 5, "it gained one token every 6 s since");
}
