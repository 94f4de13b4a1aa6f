//! A limit of which a node counts a share of its own: a take looks at the share, asks Redis, and then spends.

use std::sync::Arc;
use std::time::Instant;

use refundd::bucket::{Acquired, Bucket, End, Order, Purpose, Take, Yield};
use refundd::channel::Channel;

use super::{CAPACITY, depth, ids, order, scene, tell};
use crate::harness::Scratch;

/// A channel with three refunds in its bucket, under a share with so many permits.
async fn share_of(permits: u32) -> (Scratch, Bucket, Arc<Channel>) {
    let limit = format!(
        "[limit.acme]\nalgorithm = \"sliding_log\"\npermits = {permits}\nper = \"1m\"\nplacement = \"local_share\"\nnodes = 1\n"
    );
    let (scratch, bucket, channel) = scene(&limit).await;
    bucket.fill(&channel.name, &ids(1..=3), End::Back, CAPACITY).await.unwrap();
    let Take::Forgot(forgotten) = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
    tell(&bucket, &forgotten, 0).await;
    (scratch, bucket, channel)
}

#[tokio::test]
async fn another_service_cannot_acquire_a_permit_that_a_take_has_looked_at() {
    let (_scratch, bucket, channel) = share_of(1).await;
    // The take waits for Redis while the other service asks.
    let (taken, acquired) =
        tokio::join!(bucket.take(&channel, order(1, 1)), bucket.acquire(&channel.limits[0], 1, None));
    let Take::Granted { taken, .. } = taken.unwrap() else { panic!() };
    assert_eq!(taken.len(), 1, "the take has the permit that it looked at");
    let acquired = acquired.unwrap();
    assert!(matches!(acquired, Acquired::Denied { .. }), "{acquired:?}");
}

#[tokio::test]
async fn a_refund_goes_back_into_the_bucket_when_a_late_first_byte_took_its_permit() {
    let (_scratch, bucket, channel) = share_of(2).await;
    let Take::Granted { taken, .. } = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
    // While the second take waits for Redis, the first request is counted once more.
    let (second, late) = tokio::join!(
        bucket.take(&channel, order(1, 1)),
        bucket.left_late(&channel.name, &channel.limits, &taken[0].1)
    );
    late.unwrap();
    let Take::Granted { taken, .. } = second.unwrap() else { panic!() };
    assert!(taken.is_empty(), "{taken:?}");
    assert_eq!(depth(&bucket, &channel).await, 2);
    assert_eq!(bucket.more(&channel.name, 5).await.unwrap().0, ids(2..=3), "it goes first again");
}

#[tokio::test]
async fn a_take_that_waits_for_redis_delays_no_take_under_the_share_of_another_limit() {
    let scratch = Scratch::new().await;
    let channel_of = |name: &str| {
        let config = scratch.config(
            "a",
            &format!(
                "[limit.{name}]\nalgorithm = \"sliding_log\"\npermits = 1\nper = \"1m\"\nplacement = \"local_share\"\nnodes = 1\n\
                 [channel.{name}]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = [\"{name}\"]\n"
            ),
        );
        Arc::clone(config.channels.values().next().unwrap())
    };
    let (slow, quick, bucket) = (channel_of("acme"), channel_of("best"), scratch.bucket());
    bucket.fill(&slow.name, &ids(1..=3), End::Back, CAPACITY).await.unwrap();
    let Take::Forgot(forgotten) = bucket.take(&slow, order(1, 1)).await.unwrap() else { panic!() };
    tell(&bucket, &forgotten, 0).await;
    let Acquired::Forgot(forgotten) = bucket.acquire(&quick.limits[0], 1, None).await.unwrap() else {
        panic!()
    };
    tell(&bucket, &forgotten, 0).await;
    let used_up = bucket.acquire(&quick.limits[0], 1, None).await.unwrap();
    assert!(matches!(used_up, Acquired::Granted { .. }), "{used_up:?}");
    // The second take needs no reply from Redis, because its share has no permit.
    let first = tokio::select! {
        biased;
        taken = bucket.take(&slow, order(1, 1)) => panic!("it came first: {taken:?}"),
        denied = bucket.take(&quick, order(1, 1)) => denied.unwrap(),
    };
    assert!(matches!(first, Take::Denied { .. }), "{first:?}");
}

/// Takes under the same share may have kept the lock of the share for long, because Redis did not answer.
#[tokio::test]
async fn a_take_that_gets_its_share_too_late_spends_no_permit() {
    let (_scratch, bucket, channel) = share_of(1).await;
    let over = Some(Instant::now());
    let late = bucket.take(&channel, Order { until: over, ..order(1, 1) }).await.unwrap();
    assert!(matches!(&late, Take::Denied { wait, .. } if wait.span.is_zero()), "{late:?}");
    let acquired = bucket.acquire(&channel.limits[0], 1, over).await.unwrap();
    assert!(matches!(acquired, Acquired::Denied { .. }), "{acquired:?}");
    assert_eq!(depth(&bucket, &channel).await, 3);
    let taken = bucket.take(&channel, order(1, 1)).await.unwrap();
    assert!(matches!(&taken, Take::Granted { taken, .. } if taken.len() == 1), "{taken:?}");
}

#[tokio::test]
async fn an_inquiry_waits_for_sends_under_a_share_alone() {
    let scratch = Scratch::new().await;
    let config = scratch.config(
        "a",
        "[limit.acme]\nalgorithm = \"sliding_log\"\npermits = 30\nper = \"1m\"\nplacement = \"local_share\"\nnodes = 1\n\
         [channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n\
         timeout = \"1s\"\nconnect_timeout = \"1s\"\non_unknown = \"inquire\"\n\
         inquiry = { url = \"http://{bank}/acme/refunds/{request_id}\", not_found_is_final = true, grace = \"30s\" }\n",
    );
    let (channel, bucket) = (Arc::clone(config.channels.values().next().unwrap()), scratch.bucket());
    bucket.fill(&channel.name, &ids(1..=10), End::Back, CAPACITY).await.unwrap();
    bucket.fill_for(Purpose::Inquire, &channel.name, &ids(11..=13), End::Back, CAPACITY).await.unwrap();
    let Take::Forgot(forgotten) = bucket.take(&channel, order(1, 1)).await.unwrap() else { panic!() };
    tell(&bucket, &forgotten, 0).await;
    let inquire = || bucket.take_inquiries(&channel, order(1, 1), Yield::ToSends);
    let first = inquire().await.unwrap();
    assert!(matches!(&first, Take::Granted { taken, .. } if taken.len() == 1), "{first:?}");
    let denied = inquire().await.unwrap();
    assert!(
        matches!(&denied, Take::Denied { wait, .. } if wait.limit == channel.limits[0].name),
        "{denied:?}"
    );
    let sent = bucket.take(&channel, order(9, 1)).await.unwrap();
    assert!(matches!(&sent, Take::Granted { taken, .. } if taken.len() == 9), "{sent:?}");
    let next = inquire().await.unwrap();
    assert!(matches!(&next, Take::Granted { taken, .. } if taken.len() == 1), "after nine sends: {next:?}");
}
