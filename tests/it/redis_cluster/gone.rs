//! A node that does not come back.

use std::slice;
use std::time::{Duration, Instant};

use playground::{RedisCluster, RedisOptions};
use refundd::bucket::Purpose;
use refundd::refund::ChannelName;

use super::SECOND;
use crate::harness::{Scratch, until, within};

#[tokio::test]
async fn a_lost_node_whose_slots_another_one_took_over_makes_nobody_ask_for_the_slots_again_and_again() {
    let mut redis = RedisCluster::start(&RedisOptions::default()).await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    let (bucket, name) = (scratch.bucket(), ChannelName::new("acme").unwrap());
    let lost = redis.owner(redis.slot_of("acme").await.unwrap()).await.unwrap();
    redis.add_replica(lost).await.unwrap();
    let answers = async || bucket.survey(Purpose::Send, slice::from_ref(&name)).await[0].is_ok();
    assert!(answers().await);
    redis.server(lost).kill_hard().await.unwrap();
    until("the replica answers", answers).await;
    let survivor = redis::Client::open(redis.server((lost + 1) % 3).admin_url()).unwrap();
    let mut survivor = survivor.get_multiplexed_async_connection().await.unwrap();
    let (mut count, mut since) = (0, Instant::now());
    within(Duration::from_secs(30), "nobody asks for the slots any more", async || {
        let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut survivor).await.unwrap();
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_cluster|slots:calls="));
        let now: u64 = calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or_default();
        if now != count {
            (count, since) = (now, Instant::now());
        }
        count > 0 && since.elapsed() > 3 * SECOND
    })
    .await;
    redis.stop().await.unwrap();
}
