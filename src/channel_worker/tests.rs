//! Tests of the worker's notices to Redis, and of a take that came too late.

use tokio::sync::mpsc;

use super::blocked::Obstacle;
use super::*;
use crate::bucket::{Bucket, End, ServerTrust};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::node::ShareLook;
use crate::store::{Settled, Store};

/// The worker for sends of a channel with a paced limit, and the settler's end of its outcomes.
fn worker(bucket: Bucket, placement: &str) -> (ChannelWorker<Sends>, mpsc::Receiver<Settled>) {
    let text = format!(
        "[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis://localhost\"\n\
         [limit.acme]\nalgorithm = \"paced\"\npermits = 1\nper = \"1s\"\n{placement}\n\
         [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\n"
    );
    let config = Config::parse(&text, "r.toml", &|_| None).unwrap();
    let channel = Arc::clone(config.channels.values().next().unwrap());
    // No server listens at this address.
    let store = Store::open("postgres://refundd@127.0.0.1:9/refundd", None, 1).unwrap();
    let node = Node::new("a", store, bucket, Arc::new(Metrics::new()));
    let bank = Arc::new(Bank::new(&channel).unwrap());
    let (outbox, inbox) = mpsc::channel(1);
    let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
    (ChannelWorker::sends(node, wake_ups, channel, bank, outbox, stop), inbox)
}

#[tokio::test]
async fn a_departure_is_kept_until_redis_has_received_it() {
    // No server listens at this address.
    let bucket =
        Bucket::open("redis://127.0.0.1:9", ServerTrust::default(), "refundd", Duration::from_secs(1))
            .unwrap();
    let (mut worker, _inbox) = worker(bucket, "");
    let channel = Arc::clone(&worker.channel);
    worker.notices.departed = true;
    let resources = || Resources { slots: Vec::new(), connections: Vec::new() };
    for _ in 0..2 {
        assert!(matches!(worker.round(&channel, resources()).await, Err(Obstacle::Redis(_))));
        assert!(worker.notices.departed, "Redis has not freed what the departed node had reserved");
    }
}

#[tokio::test]
async fn what_is_taken_too_long_after_the_look_at_a_share_goes_back_into_the_bucket() {
    let bucket = Bucket::in_memory(Duration::from_secs(5)).unwrap();
    let (mut worker, _inbox) = worker(bucket.clone(), "placement = \"local_share\"\nnodes = 1");
    let channel = Arc::clone(&worker.channel);
    worker.node.shares.keep(&channel.limits[0], 1, ShareLook::now());
    assert!(worker.effective_limits.now().is_some() && !worker.effective_limits.are_too_old());
    worker.effective_limits.look_before_a_sleep();
    assert!(worker.effective_limits.are_too_old());

    let id = RefundId(7);
    bucket.fill(&channel.name, &[id], End::Back, 100).await.unwrap();
    let (ids, _) = bucket.more(&channel.name, 1).await.unwrap();
    assert_eq!(ids, [id]);
    worker.give_back(&[(id, Permit { numbers: Vec::new(), span: None })]).await;
    assert!(worker.notices.wasted, "long windows get these permits back");
    assert_eq!(bucket.more(&channel.name, 1).await.unwrap().0, [id]);
}
