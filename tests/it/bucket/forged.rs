//! What somebody wrote to Redis stops nothing for long, and does not fill the memory of nodes.

use std::time::Duration;

use refundd::bucket::{Bucket, End, Take};
use refundd::limiter::LedgerCount;

use super::{CAPACITY, ids, order, scene, take, three_a_second};
use crate::harness::Scratch;

async fn write(scratch: &Scratch, command: &str, part: &str, args: &[String]) {
    let key = format!("{}:{{acme}}:{part}", scratch.key_prefix());
    let mut connection = scratch.redis().await;
    redis::cmd(command).arg(key).arg(args).query_async::<()>(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_forged_mark_does_not_keep_a_refund_out_of_the_bucket() {
    let (scratch, bucket, channel) = scene("").await;
    for (id, mark) in [(1, "+inf"), (2, "9000000000000001"), (3, "1e300")] {
        write(&scratch, "ZADD", "present", &[mark.to_owned(), id.to_string()]).await;
    }
    bucket.fill(&channel.name, &ids(1..=4), End::Back, CAPACITY).await.unwrap();
    assert_eq!(take(&bucket, &channel, 9).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_forged_window_far_ahead_is_counted_again_from_the_ledger() {
    let (scratch, bucket, channel) = three_a_second().await;
    let far = (1_u64 << 53).to_string();
    let forged = ["window", &far, "owed", &far, "used", "0"].map(str::to_owned);
    write(&scratch, "HSET", "limit", &forged).await;
    let taken = bucket.take(&channel, order(1, 1)).await.unwrap();
    assert!(matches!(taken, Take::Forgot(_)), "{taken:?}");
}

/// Redis's clock was `ahead` when the ledger was asked, and the ledger gave this count of the window there.
async fn restored_ahead(ahead: Duration, used: i64) -> (Scratch, Bucket, Take) {
    let (scratch, bucket, channel) = three_a_second().await;
    let Take::Granted { taken, .. } = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
    let ahead_us = i64::try_from(ahead.as_micros()).unwrap();
    let window_start_us = taken[0].1.numbers[0].window_start_us + ahead_us;
    let spent = LedgerCount { generation: 1, window_start_us, used, ..LedgerCount::default() };
    bucket.restore(&channel.limits[0], &spent).await.unwrap();
    let taken = bucket.take(&channel, order(1, 1)).await.unwrap();
    (scratch, bucket, taken)
}

#[tokio::test]
async fn a_window_that_a_wrong_clock_put_a_day_ahead_is_counted_again_from_the_ledger() {
    let (_scratch, _bucket, taken) = restored_ahead(Duration::from_hours(24), 0).await;
    assert!(matches!(taken, Take::Forgot(_)), "{taken:?}");
}

/// The permits of that window were spent, by a clock that was ahead by less than the tolerance.
#[tokio::test]
async fn a_window_within_the_tolerance_keeps_the_ledgers_count() {
    let (_scratch, _bucket, taken) = restored_ahead(Duration::from_secs(4), 3).await;
    assert!(matches!(taken, Take::Denied { .. }), "{taken:?}");
}

#[tokio::test]
async fn a_long_text_is_no_rule() {
    let (scratch, bucket, channel) = three_a_second().await;
    let rule = channel.limits[0].rule.to_string().replace("\"permits\":3", "\"permits\":1");
    let long = format!("{rule}{}", " ".repeat(100_000));
    let now_us = scratch.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    let forged = ["rule".to_owned(), long, "seen".to_owned(), now_us.to_string()];
    write(&scratch, "HSET", "limit", &forged).await;
    let taken = bucket.take(&channel, order(1, 1)).await.unwrap();
    assert!(matches!(taken, Take::Forgot(_)), "the rule is in effect, and replies carry it whole");
}

#[tokio::test]
async fn a_long_element_of_a_bucket_is_cut_before_it_leaves_redis() {
    let (scratch, bucket, channel) = scene("").await;
    write(&scratch, "RPUSH", "bucket", &["x".repeat(1_000_000)]).await;
    let refused = bucket.more(&channel.name, 1).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("\"{}\"", "x".repeat(20))), "{refused}");
    bucket.fill(&channel.name, &ids(1..=2), End::Back, CAPACITY).await.unwrap();
    assert_eq!(take(&bucket, &channel, 9).await, [1, 2]);
}
