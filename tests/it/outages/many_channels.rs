//! Loops over many channels: a server that goes silent in the middle, and other nodes that do the same work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use playground::Weather;
use playground::forward::Forward;
use redis::{ErrorKind, RedisError, Value};
use refundd::bucket::{Bucket, Purpose, SimulatedServer};
use refundd::due_poller::DuePoller;
use refundd::feeder::Feeder;
use refundd::metrics::Metrics;
use refundd::node::Node;
use refundd::refund::ChannelName;
use refundd::store::Store;
use refundd::wake_up::WakeUps;
use tokio::task::JoinHandle;

use super::SECOND;
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, until, within};

/// How many buckets the feeder fills at the same time.
const WIDTH: usize = 4;

/// So many channels, each with one refund that is due.
async fn with_due(scratch: &Scratch, count: usize) -> Vec<ChannelName> {
    scratch
        .sql(&format!(
            "insert into refundd.channels (channel, endpoint, settings, published_by)
             select 'c' || n, 'http://127.0.0.1:9/', '{{}}'::jsonb, 'test' from generate_series(1, {count}) n"
        ))
        .await;
    scratch
        .sql(&format!(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             select 'R-' || n, 'c' || n, 'P-' || n, 100, 'EUR' from generate_series(1, {count}) n"
        ))
        .await;
    (1..=count).map(|n| ChannelName::new(&format!("c{n}")).unwrap()).collect()
}

/// Runs the feeder of a node that was nudged for these channels.
fn feed(node: &Node, channels: &[ChannelName]) -> JoinHandle<()> {
    let wake_ups = WakeUps::of_sends(1000);
    for channel in channels {
        wake_ups.nudge(channel);
    }
    tokio::spawn(Feeder::new(node.clone(), wake_ups).run())
}

/// All tries one after the other would take minutes, and systemd would kill the node.
#[tokio::test]
async fn a_feeder_of_many_channels_does_not_look_stuck_while_postgres_is_silent() {
    let scratch = Scratch::new().await;
    let channels = with_due(&scratch, 200).await;
    let way = Forward::start(&SERVERS.postgres.socket()).unwrap();
    way.set(Weather::Dark);
    let around = SERVERS.postgres.url_through(way.address(), &scratch.name);
    let store = Store::open(&around, None, 4).unwrap();
    let node = Node::new("a", store, scratch.bucket(), Arc::new(Metrics::default()));
    let feeder = feed(&node, &channels);
    // One try takes three seconds.
    let began = Instant::now();
    while began.elapsed() < SECOND * 15 {
        let stuck = node.progress.stuck(SECOND * 10);
        assert!(stuck.is_empty(), "{stuck:?}");
        tokio::time::sleep(SECOND / 10).await;
    }
    way.set(Weather::Fair);
    let bucket = scratch.bucket();
    within(SECOND * 20, "every bucket is filled", async || {
        let depths = bucket.depths(Purpose::Send, &channels).await;
        depths.into_iter().all(|depth| depth.unwrap() == 1)
    })
    .await;
    node.stop.cancel();
    feeder.await.unwrap();
}

/// A Redis that lost every id. It counts what it is asked.
#[derive(Default)]
struct EmptyRedis {
    /// Looks at all buckets, one for each pass.
    passes: AtomicUsize,
    /// Looks at a few buckets.
    looks: AtomicUsize,
    fills: AtomicUsize,
    /// How many ids each bucket has at a look at a few buckets.
    depth: i64,
    /// Whether it answers looks and no fill.
    is_silent: bool,
}

impl EmptyRedis {
    const CHANNELS: usize = 40;

    fn node(self: &Arc<Self>, scratch: &Scratch) -> Node {
        let bucket = Bucket::simulated(self.clone(), SECOND * 5).unwrap();
        Node::new("a", scratch.store.clone(), bucket, Arc::new(Metrics::default()))
    }

    /// Waits for a second pass, and returns the fills and the passes until now.
    async fn second_pass(&self) -> (usize, usize) {
        until("there is a second pass", async || self.passes.load(Ordering::SeqCst) >= 2).await;
        // In this order: passes that begin meanwhile allow more fills.
        let fills = self.fills.load(Ordering::SeqCst);
        (fills, self.passes.load(Ordering::SeqCst))
    }
}

impl SimulatedServer for EmptyRedis {
    fn run(&self, _: &str, keys: &[String], args: &[Vec<u8>]) -> Result<Value, RedisError> {
        if args.len() == 1 && args[0] == b"depths" {
            let is_pass = keys.len() == Self::CHANNELS;
            let count = if is_pass { &self.passes } else { &self.looks };
            count.fetch_add(1, Ordering::SeqCst);
            let depth = if is_pass { 0 } else { self.depth };
            let depths = keys.iter().flat_map(|_| [Value::Int(depth), Value::BulkString(Vec::new())]);
            return Ok(Value::Array(depths.collect()));
        }
        self.fills.fetch_add(1, Ordering::SeqCst);
        if self.is_silent {
            return Err((ErrorKind::Io, "it does not answer").into());
        }
        let (now_us, depth, added) = (1, 1, 1);
        Ok(Value::Array([now_us, depth, added].map(Value::Int).to_vec()))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

#[tokio::test]
async fn a_feeder_tries_no_further_bucket_when_redis_goes_silent_in_the_middle() {
    let scratch = Scratch::new().await;
    let channels = with_due(&scratch, EmptyRedis::CHANNELS).await;
    let redis = Arc::new(EmptyRedis { is_silent: true, ..EmptyRedis::default() });
    let node = redis.node(&scratch);
    let feeder = feed(&node, &channels);
    let (fills, passes) = redis.second_pass().await;
    assert!(fills <= WIDTH * passes, "{fills} fills in {passes} passes");
    node.stop.cancel();
    feeder.await.unwrap();
}

#[tokio::test]
async fn the_due_poller_tries_no_further_bucket_when_redis_goes_silent_in_the_middle() {
    let scratch = Scratch::new().await;
    with_due(&scratch, EmptyRedis::CHANNELS).await;
    scratch.lease("true", "attempts = 1").await;
    scratch.release("true", "state = 'unknown', inquire_at = now()").await;
    let redis = Arc::new(EmptyRedis { is_silent: true, ..EmptyRedis::default() });
    let node = redis.node(&scratch);
    node.set_leads(true);
    let poller = tokio::spawn(DuePoller::new(node.clone(), WakeUps::of_inquiries()).run());
    let (fills, passes) = redis.second_pass().await;
    assert!((1..=passes).contains(&fills), "{fills} fills in {passes} passes");
    node.stop.cancel();
    poller.await.unwrap();
}

#[tokio::test]
async fn a_feeder_does_not_fill_buckets_that_another_node_filled_since_its_first_look() {
    let scratch = Scratch::new().await;
    let channels = with_due(&scratch, EmptyRedis::CHANNELS).await;
    // Far below half full: such a bucket holds all that is due.
    let redis = Arc::new(EmptyRedis { depth: 1, ..EmptyRedis::default() });
    let node = redis.node(&scratch);
    let feeder = feed(&node, &channels);
    let further = EmptyRedis::CHANNELS / WIDTH - 1;
    until("it looked at all buckets", async || redis.looks.load(Ordering::SeqCst) == further).await;
    node.stop.cancel();
    feeder.await.unwrap();
    assert_eq!(redis.fills.load(Ordering::SeqCst), WIDTH, "those of the first look alone");
}
