//! What somebody wrote to Redis stops nothing for long, and does not fill the memory of nodes.

use std::time::Duration;

use refundd::bucket::{Bucket, End, Take};
use refundd::channel::Channel;
use refundd::limiter::{LedgerCount, SpentGroup};

use super::{CAPACITY, ids, order, scene, take, tell, three_a_second};
use crate::harness::Scratch;

/// The greatest number that the scripts take for a count.
const GREATEST: i64 = (1 << 53) - 1;

async fn write(scratch: &Scratch, command: &str, part: &str, args: &[String]) {
    let key = format!("{}:{{acme}}:{part}", scratch.key_prefix());
    let mut connection = scratch.redis().await;
    redis::cmd(command).arg(key).arg(args).query_async::<()>(&mut connection).await.unwrap();
}

/// Redis's time in us.
pub(super) async fn now_us(connection: &mut redis::aio::MultiplexedConnection) -> i64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(connection).await.unwrap();
    seconds * 1_000_000 + micros
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
    let far = GREATEST.to_string();
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
    let now_us = scratch.now_us().await;
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

#[tokio::test]
async fn a_generation_that_lua_cannot_count_up_is_counted_again_from_the_ledger() {
    let (scratch, bucket, channel) = three_a_second().await;
    let forge = async |generation: i64| {
        let forged = ["generation".to_owned(), generation.to_string()];
        write(&scratch, "HSET", "limit", &forged).await;
    };
    forge(GREATEST + 1).await;
    let Take::Forgot(forgotten) = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
    tell(&bucket, &forgotten, 0).await;
    assert_eq!(take(&bucket, &channel, 1).await, [1]);
    // The greatest generation counts, and the number after it deletes it.
    forge(GREATEST).await;
    let Take::Granted { taken, .. } = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
    assert_eq!(taken[0].1.numbers[0].generation, GREATEST);
    bucket.forget(&channel.limits[0], GREATEST + 1).await.unwrap();
    let taken = bucket.take(&channel, order(1, 1)).await.unwrap();
    assert!(matches!(taken, Take::Forgot(_)), "{taken:?}");
}

#[tokio::test]
async fn a_forged_rest_ends() {
    let (scratch, bucket, channel) = three_a_second().await;
    write(&scratch, "HSET", "limit", &["rest_until".to_owned(), GREATEST.to_string()]).await;
    let taken = bucket.take(&channel, order(1, 1)).await.unwrap();
    assert!(matches!(taken, Take::Denied { .. }), "{taken:?}");
    let mut connection = scratch.redis().await;
    let key = format!("{}:{{acme}}:limit", scratch.key_prefix());
    let until: i64 =
        redis::cmd("HGET").arg(key).arg("rest_until").query_async(&mut connection).await.unwrap();
    let rests = until - now_us(&mut connection).await;
    assert!(rests < 21_000_000, "the limit rests for {rests} us");
}

/// Takes as a node does, which restores what Redis forgot. The ledger has the count of `spent`, each time under a new generation.
async fn take_and_restore(bucket: &Bucket, channel: &Channel, spent: &mut LedgerCount) -> Take {
    for _ in 0..5 {
        match bucket.take(channel, order(1, 1)).await.unwrap() {
            Take::Forgot(forgotten) => {
                spent.generation += 1;
                bucket.restore(&forgotten.limit, spent).await.unwrap();
            }
            taken => return taken,
        }
    }
    panic!("Redis forgets what it is given")
}

/// As if Redis's clock had been set forward to a time beyond the present one. No spent permit would ever become too old.
#[tokio::test]
async fn forged_steps_of_the_clock_stop_no_limit_and_raise_none() {
    for (name, needs) in [
        ("paced", ""),
        ("paced", "gap = \"strict\"\n"),
        ("sliding_log", ""),
        ("sliding_window", ""),
        ("token_bucket", "burst = 1\n"),
    ] {
        for ahead_us in [3_600_000_000, -3_600_000_000] {
            let limit = format!("[limit.acme]\nalgorithm = \"{name}\"\n{needs}permits = 3\nper = \"10s\"\n");
            let (scratch, bucket, channel) = scene(&limit).await;
            bucket.fill(&channel.name, &ids(1..=9), End::Back, CAPACITY).await.unwrap();
            let mut unspent = LedgerCount::default();
            take_and_restore(&bucket, &channel, &mut unspent).await;
            let mut connection = scratch.redis().await;
            let now = now_us(&mut connection).await;
            redis::cmd("HSET")
                .arg(format!("{}:clock", scratch.key_prefix()))
                .arg("steps")
                .arg(now + ahead_us)
                .query_async::<()>(&mut connection)
                .await
                .unwrap();
            // An attacker needs no steps to delete the count. So the limit forgets here in any case.
            bucket.forget(&channel.limits[0], i64::MAX).await.unwrap();
            let past = SpentGroup { at_us: now, count: 3, over_us: Some(0) };
            let mut spent = LedgerCount { generation: unspent.generation, history: vec![past], ..unspent };
            match take_and_restore(&bucket, &channel, &mut spent).await {
                Take::Denied { wait, .. } => assert!(wait.span > Duration::from_secs(1), "{name}: {wait:?}"),
                other => panic!("{name}: {other:?}"),
            }
            bucket.forget(&channel.limits[0], i64::MAX).await.unwrap();
            spent.history.clear();
            let taken = take_and_restore(&bucket, &channel, &mut spent).await;
            let is_stopped =
                matches!(&taken, Take::Denied { wait, .. } if wait.span > Duration::from_secs(4));
            assert!(!is_stopped, "{name}: {taken:?}");
        }
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_named_with_the_way_out_and_the_channel_goes_on_when_it_is_deleted() {
    let (scratch, bucket, channel) = scene("").await;
    write(&scratch, "SET", "bucket", &["x".to_owned()]).await;
    let refused = bucket.take(&channel, order(1, 1)).await.unwrap_err().to_string();
    let named = format!("{}:{{acme}}:*", scratch.key_prefix());
    for said in [refused, bucket.trouble().unwrap()] {
        assert!(said.contains("WRONGTYPE") && said.contains(&named) && said.contains("delete it"), "{said}");
    }
    write(&scratch, "DEL", "bucket", &[]).await;
    bucket.fill(&channel.name, &ids(1..=2), End::Back, CAPACITY).await.unwrap();
    assert_eq!(take(&bucket, &channel, 9).await, [1, 2]);
}
