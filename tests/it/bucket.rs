//! The waiting line and the fixed window, asked directly.

mod forged;
mod groups;
mod long_log;
mod restoring;
mod shares;
mod token_bucket;

use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::{Bucket, End, Order, Purpose, Take};
use refundd::channel::Channel;
use refundd::limiter::{Forgotten, LedgerCount};
use refundd::refund::RefundId;

use crate::harness::{self, Scratch};

const CAPACITY: u32 = 10;

fn order(want: u32, low_water: u32) -> Order {
    Order { want, low_water, lead_time: Duration::from_millis(2), until: None }
}

/// Tells Redis what a ledger that has seen nothing would, or so many of the current window.
async fn tell(bucket: &Bucket, forgotten: &Forgotten, used: i64) {
    let spent =
        LedgerCount { generation: 1, window_start_us: forgotten.window.0, used, ..LedgerCount::default() };
    bucket.restore(&forgotten.limit, &spent).await.unwrap();
}

fn ids(range: std::ops::RangeInclusive<i64>) -> Vec<RefundId> {
    range.map(RefundId).collect()
}

async fn scene(limits: &str) -> (Scratch, Bucket, Arc<Channel>) {
    let scratch = Scratch::new().await;
    let channels = format!(
        "{limits}[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = {}\n",
        if limits.is_empty() { "[]" } else { "[\"acme\"]" }
    );
    let config = scratch.config("a", &channels);
    let channel = Arc::clone(config.channels.values().next().unwrap());
    let bucket = scratch.bucket();
    (scratch, bucket, channel)
}

async fn depth(bucket: &Bucket, channel: &Channel) -> u64 {
    harness::depth(bucket, Purpose::Send, &channel.name).await
}

async fn take(bucket: &Bucket, channel: &Channel, want: u32) -> Vec<i64> {
    match bucket.take(channel, order(want, 1)).await.unwrap() {
        Take::Granted { taken, .. } => taken.iter().map(|(id, _)| id.0).collect(),
        Take::Empty => Vec::new(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn ids_leave_in_the_order_in_which_they_came() {
    let (_scratch, bucket, channel) = scene("").await;
    assert_eq!(bucket.fill(&channel.name, &ids(1..=5), End::Back, CAPACITY).await.unwrap(), 5);
    assert_eq!(take(&bucket, &channel, 2).await, [1, 2]);
    assert_eq!(take(&bucket, &channel, 9).await, [3, 4, 5]);
    assert!(take(&bucket, &channel, 9).await.is_empty());
}

#[tokio::test]
async fn filling_twice_is_harmless() {
    let (_scratch, bucket, channel) = scene("").await;
    bucket.fill(&channel.name, &ids(1..=5), End::Back, CAPACITY).await.unwrap();
    assert_eq!(bucket.fill(&channel.name, &ids(1..=6), End::Back, CAPACITY).await.unwrap(), 1);
    assert_eq!(
        bucket.fill(&channel.name, &[RefundId(7), RefundId(7)], End::Front, CAPACITY).await.unwrap(),
        1
    );
    assert_eq!(depth(&bucket, &channel).await, 7);
}

#[tokio::test]
async fn an_id_that_was_just_taken_is_not_put_into_the_bucket_again_while_its_claim_is_under_way() {
    let (_scratch, bucket, channel) = scene("").await;
    bucket.fill(&channel.name, &ids(1..=3), End::Back, CAPACITY).await.unwrap();
    assert_eq!(take(&bucket, &channel, 1).await, [1]);
    assert_eq!(bucket.fill(&channel.name, &ids(1..=3), End::Back, CAPACITY).await.unwrap(), 0);
    harness::until("it may stand in line again", async || {
        bucket.fill(&channel.name, &ids(1..=1), End::Back, CAPACITY).await.unwrap() == 1
    })
    .await;
}

#[tokio::test]
async fn a_full_bucket_refuses_ids_at_its_back_and_makes_room_for_ids_at_its_front() {
    let (_scratch, bucket, channel) = scene("").await;
    assert_eq!(bucket.fill(&channel.name, &ids(1..=20), End::Back, CAPACITY).await.unwrap(), 10);
    assert_eq!(bucket.fill(&channel.name, &ids(101..=103), End::Front, CAPACITY).await.unwrap(), 3);
    assert_eq!(depth(&bucket, &channel).await, 10);
    assert_eq!(take(&bucket, &channel, 20).await, [101, 102, 103, 1, 2, 3, 4, 5, 6, 7]);
    // The newest were sent out again and may come back.
    assert_eq!(bucket.fill(&channel.name, &ids(8..=10), End::Back, CAPACITY).await.unwrap(), 3);
}

#[tokio::test]
async fn a_bucket_whose_list_alone_was_lost_is_filled_anew() {
    let (scratch, bucket, channel) = scene("").await;
    bucket.fill(&channel.name, &ids(1..=5), End::Back, CAPACITY).await.unwrap();
    let mut connection = scratch.redis().await;
    redis::cmd("DEL")
        .arg(format!("{}:{{acme}}:bucket", scratch.key_prefix()))
        .query_async::<()>(&mut connection)
        .await
        .unwrap();
    assert_eq!(bucket.fill(&channel.name, &ids(1..=5), End::Back, CAPACITY).await.unwrap(), 5);
    assert_eq!(take(&bucket, &channel, 9).await, [1, 2, 3, 4, 5]);
}

/// Waits for the beginning of a second, so that almost a window's length lies ahead.
async fn fresh_window(scratch: &Scratch) {
    let into = scratch.now_us().await % 1_000_000;
    if into > 50_000 {
        tokio::time::sleep(Duration::from_micros(u64::try_from(1_000_000 - into).unwrap())).await;
    }
}

/// A window of a second with three permits, which Redis has been told is unspent.
async fn three_a_second() -> (Scratch, Bucket, Arc<Channel>) {
    let (scratch, bucket, channel) = scene("[limit.acme]\npermits = 3\nper = \"1s\"\n").await;
    bucket.fill(&channel.name, &ids(1..=10), End::Back, CAPACITY).await.unwrap();
    fresh_window(&scratch).await;
    match bucket.take(&channel, order(1, 1)).await.unwrap() {
        Take::Forgot(forgotten) => tell(&bucket, &forgotten, 0).await,
        other => panic!("a limit that Redis never saw grants nothing: {other:?}"),
    }
    (scratch, bucket, channel)
}

#[tokio::test]
async fn a_denied_take_leaves_the_refunds_in_the_bucket_and_says_how_long_to_wait() {
    let (_scratch, bucket, channel) = three_a_second().await;
    assert_eq!(take(&bucket, &channel, 10).await, [1, 2, 3], "no more than the window has");
    match bucket.take(&channel, order(10, 1)).await.unwrap() {
        Take::Denied { wait, depth, .. } => {
            assert_eq!(depth, Some(7));
            assert!(
                wait.span <= Duration::from_secs(1) && wait.span > Duration::from_millis(100),
                "{wait:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(depth(&bucket, &channel).await, 7);
}

#[tokio::test]
async fn permits_are_numbered_without_gaps_and_open_with_their_window() {
    let (_scratch, bucket, channel) = three_a_second().await;
    let Take::Granted { taken, .. } = bucket.take(&channel, order(2, 1)).await.unwrap() else { panic!() };
    let Take::Granted { taken: more, .. } = bucket.take(&channel, order(2, 1)).await.unwrap() else {
        panic!()
    };
    let numbers: Vec<i32> = taken.iter().chain(&more).map(|(_, p)| p.numbers[0].ordinal).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let span = taken[0].1.span.unwrap();
    assert_eq!(span.opens_us % 1_000_000, 0);
    assert_eq!(span.closes_us - span.opens_us, 980_000, "the window less the lateness");
}

#[tokio::test]
async fn a_take_from_an_empty_bucket_spends_no_permit() {
    let (scratch, bucket, channel) = scene("[limit.acme]\npermits = 3\nper = \"1s\"\n").await;
    for _ in 0..5 {
        assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Empty));
    }
    let mut connection = scratch.redis().await;
    let kept: bool = redis::cmd("EXISTS")
        .arg(format!("{}:{{acme}}:limit", scratch.key_prefix()))
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(!kept);
}

#[tokio::test]
async fn a_restore_never_lowers_a_count() {
    let (_scratch, bucket, channel) = three_a_second().await;
    let Take::Granted { taken, .. } = bucket.take(&channel, order(2, 1)).await.unwrap() else { panic!() };
    let window = taken[0].1.numbers[0].window_start_us;
    let spent = |window_start_us, used| LedgerCount {
        generation: 1,
        window_start_us,
        used,
        ..LedgerCount::default()
    };
    bucket.restore(&channel.limits[0], &spent(window, 0)).await.unwrap();
    bucket.restore(&channel.limits[0], &spent(window - 1_000_000, 0)).await.unwrap();
    let Take::Granted { taken, .. } = bucket.take(&channel, order(2, 1)).await.unwrap() else { panic!() };
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].1.numbers[0].ordinal, 3);
    bucket.restore(&channel.limits[0], &spent(window, 3)).await.unwrap();
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Denied { .. }));
}

/// Redis's clock was a minute ahead when the ledger was asked, and is right again. Without the second question the
/// channel would wait for that minute.
#[tokio::test]
async fn a_slot_that_a_wrong_clock_put_far_ahead_is_counted_again_from_the_ledger() {
    let (scratch, bucket, channel) =
        scene("[limit.acme]\nalgorithm = \"paced\"\npermits = 10\nper = \"1s\"\n").await;
    bucket.fill(&channel.name, &ids(1..=5), End::Back, CAPACITY).await.unwrap();
    let Take::Forgot(forgotten) = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
    tell(&bucket, &forgotten, 0).await;
    let mut connection = scratch.redis().await;
    let limit = format!("{}:{{acme}}:limit", scratch.key_prefix());
    let slot: i64 = redis::cmd("HGET").arg(&limit).arg("slot").query_async(&mut connection).await.unwrap();
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut connection).await.unwrap();
    assert!(slot >= 0, "paced keeps its slot there");
    let ahead = (seconds + 60) * 1_000_000;
    redis::cmd("HSET")
        .arg(&limit)
        .arg(&[("slot", ahead), ("owed", ahead)])
        .query_async::<()>(&mut connection)
        .await
        .unwrap();
    assert!(matches!(bucket.take(&channel, order(1, 1)).await.unwrap(), Take::Forgot(_)));
}

#[tokio::test]
async fn one_taker_at_a_time_fills_a_low_bucket() {
    let (_scratch, bucket, channel) = scene("").await;
    bucket.fill(&channel.name, &ids(1..=10), End::Back, CAPACITY).await.unwrap();
    let mut calls_to_feed = 0;
    for _ in 0..5 {
        let Take::Granted { is_low, .. } = bucket.take(&channel, order(1, 8)).await.unwrap() else {
            panic!()
        };
        calls_to_feed += i32::from(is_low);
    }
    assert_eq!(calls_to_feed, 1);
}

#[tokio::test]
async fn an_id_that_somebody_pushed_twice_is_taken_once() {
    let (scratch, bucket, channel) = scene("").await;
    let mut connection = scratch.redis().await;
    let key = format!("{}:{{acme}}:bucket", scratch.key_prefix());
    redis::cmd("LPUSH").arg(&key).arg(&[7, 7, 7]).query_async::<()>(&mut connection).await.unwrap();
    assert_eq!(take(&bucket, &channel, 9).await, [7]);
}

#[tokio::test]
async fn permits_of_several_limits_always_have_a_span_in_common() {
    let (scratch, bucket, _) = scene("").await;
    let two = "[limit.short]\npermits = 20\nper = \"300ms\"\nahead = \"100ms\"\n[limit.long]\npermits = 30\nper = \"600ms\"\n\
               [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"short\", \"long\"]\n";
    let channel = Arc::clone(scratch.config("a", two).channels.values().next().unwrap());
    let (mut granted, mut next) = (0, 1);
    let began = std::time::Instant::now();
    while granted < 100 {
        assert!(
            began.elapsed() < Duration::from_mins(1),
            "{granted}: the long limit alone allows 30 in 600 ms"
        );
        bucket.fill(&channel.name, &ids(next..=next + 9), End::Back, 100).await.unwrap();
        next += 10;
        match bucket.take(&channel, order(5, 1)).await.unwrap() {
            Take::Granted { taken, .. } => {
                granted += taken.len();
                let span = taken[0].1.span.unwrap();
                assert!(span.opens_us < span.closes_us, "{span:?}");
            }
            Take::Forgot(forgotten) => tell(&bucket, &forgotten, 0).await,
            Take::ClockStepped { .. } => panic!("nobody set the clock"),
            Take::Denied { wait, .. } => {
                tokio::time::sleep(wait.span.min(Duration::from_millis(20))).await;
            }
            Take::Empty => {}
        }
    }
}

#[tokio::test]
async fn permits_that_nobody_claimed_do_not_eat_up_a_long_window() {
    harness::window_lasts(3_600, 60).await;
    let (_scratch, bucket, channel) = scene("[limit.acme]\npermits = 5\nper = \"1h\"\n").await;
    bucket.fill(&channel.name, &ids(1..=10), End::Back, CAPACITY).await.unwrap();
    let ask = async || match bucket.take(&channel, order(5, 1)).await.unwrap() {
        // The ledger has seen none of them.
        Take::Forgot(forgotten) => tell(&bucket, &forgotten, 0).await,
        other => panic!("{other:?}"),
    };
    ask().await;
    assert_eq!(take(&bucket, &channel, 5).await.len(), 5);
    assert!(matches!(bucket.take(&channel, order(5, 1)).await.unwrap(), Take::Denied { .. }));
    bucket.forget_long_windows(&channel.limits).await.unwrap();
    ask().await;
    assert_eq!(take(&bucket, &channel, 5).await.len(), 5);
}
