//! Tests of the worker's notices to Redis.

use tokio::sync::mpsc;

use super::blocked::Obstacle;
use super::*;
use crate::bucket::{Bucket, ServerTrust};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::store::Store;

#[tokio::test]
async fn a_departure_is_kept_until_redis_has_received_it() {
    let text = "[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis://localhost\"\n\
                [limit.acme]\nalgorithm = \"paced\"\npermits = 1\nper = \"1s\"\n\
                [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\n";
    let config = Config::parse(text, "r.toml", &|_| None).unwrap();
    let channel = Arc::clone(config.channels.values().next().unwrap());
    // No server listens at these addresses.
    let store = Store::open("postgres://refundd@127.0.0.1:9/refundd", None, 1).unwrap();
    let bucket =
        Bucket::open("redis://127.0.0.1:9", ServerTrust::default(), "refundd", Duration::from_secs(1))
            .unwrap();
    let node = Node::new("a", store, bucket, Arc::new(Metrics::new()));
    let bank = Arc::new(Bank::new(&channel).unwrap());
    let (outbox, _inbox) = mpsc::channel(1);
    let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
    let mut worker = ChannelWorker::sends(node, wake_ups, Arc::clone(&channel), bank, outbox, stop);
    worker.notices.departed = true;
    let resources = || Resources { slots: Vec::new(), connections: Vec::new() };
    for _ in 0..2 {
        assert!(matches!(worker.round(&channel, resources()).await, Err(Obstacle::Redis(_))));
        assert!(worker.notices.departed, "Redis has not freed what the departed node had reserved");
    }
}
