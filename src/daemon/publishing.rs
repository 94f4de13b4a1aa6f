//! Publishes the channels and rules that this node runs: at the start, at each reload, and again when a node that ran others
//! is gone.
//!
//! The node that publishes last wins. Recovery, the feeder and the checks of producers obey what was published, whether or
//! not a living node runs it. So the leading node looks whether somebody published since it did, and then publishes its own.
//!
//! While living nodes run different files it does nothing: then the last start or reload counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::config::Config;
use crate::failing::Failing;
use crate::node::running::Running;
use crate::node::{Node, jittered};
use crate::refund::LimitName;
use crate::store::{Published, StoreError};
use crate::telemetry::chain;

/// Held by a start or a reload from before it publishes until the node runs what it published.
pub(super) type Publishing = Arc<Mutex<()>>;

/// Publishes what the node is about to run.
///
/// # Errors
/// When Postgres does not take it. The newest rules are then those that the node runs, unless Postgres refuses these, too.
pub(super) async fn publish_new(node: &Node, new: &Running) -> Result<(), StoreError> {
    let changed = publish_rules(node, new).await?;
    let Err(error) = publish_channels(node, new).await else { return Ok(()) };
    // `prove` judges by the newest rules, and this node goes on with the old ones.
    if changed > 0
        && let Err(error) = publish_rules(node, &node.running()).await
    {
        tracing::warn!(
            error = %chain(&error),
            "Failed to publish the rules that stay in force; the leading node will try it"
        );
    }
    Err(error)
}

/// Answers how many rules changed.
async fn publish_rules(node: &Node, running: &Running) -> Result<u64, StoreError> {
    let rules = running.limits.iter().map(|limit| (&limit.name, &limit.rule));
    node.store.publish_rules(&node.name, rules).await
}

/// Answers how many channels changed.
async fn publish_channels(node: &Node, running: &Running) -> Result<u64, StoreError> {
    let channels: Vec<Published> = running
        .channels
        .iter()
        .map(|channel| Published::of(channel, Config::public_settings(channel)))
        .collect();
    node.store.publish(&node.name, &channels).await
}

/// The loop that publishes again. The heartbeat leaves it to a loop of its own, because ten thousand channels may take seconds.
#[derive(Debug)]
pub(super) struct Publisher {
    node: Node,
    publishing: Publishing,
    /// The mark from just before this loop published last; `None` until then.
    seen: Option<String>,
    /// Since when every pass found this node speaking for all.
    calm_since: Option<Instant>,
}

impl Publisher {
    const PERIOD: Duration = Duration::from_secs(3);
    /// A node that has led for so long has read the heartbeats of all living nodes.
    const HAS_SEEN_ALL: Duration = Duration::from_secs(5);
    /// A node whose heartbeats are late is seen again within this time. It may run a newer file.
    const CALM: Duration = Duration::from_secs(10);

    pub fn new(node: Node, publishing: Publishing) -> Self {
        Publisher { node, publishing, seen: None, calm_since: None }
    }

    pub async fn run(mut self) {
        let stop = self.node.stop.clone();
        let mut failing = Failing::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(jittered(Self::PERIOD)) => {}
            }
            if !self.speaks_for_all() {
                self.calm_since = None;
                continue;
            }
            if self.calm_since.get_or_insert_with(Instant::now).elapsed() < Self::CALM {
                continue;
            }
            let done = tokio::select! {
                () = stop.cancelled() => return,
                done = self.pass() => done,
            };
            failing.note(
                &done,
                |error| {
                    tracing::warn!(
                        error = %chain(error),
                        "Failed to publish this node's channels and limits again, will try again"
                    );
                },
                || tracing::info!("Publishing channels and limits works again"),
            );
        }
    }

    /// Whether this node leads, and every living node runs what it runs.
    fn speaks_for_all(&self) -> bool {
        let node = &self.node;
        let has_seen_all = node.leads_for().is_some_and(|led| led >= Self::HAS_SEEN_ALL);
        has_seen_all && node.writes_to_postgres() && !node.differs.load(Ordering::Relaxed)
    }

    /// Publishes what this node runs, if somebody has published since it last did.
    async fn pass(&mut self) -> Result<(), StoreError> {
        let limits: Vec<LimitName> =
            self.node.running().limits.iter().map(|limit| limit.name.clone()).collect();
        let Some(mark) = self.node.store.published_mark(&limits).await? else { return Ok(()) };
        if self.seen.as_ref() == Some(&mark) {
            return Ok(());
        }
        // A reload under way publishes by itself.
        let Ok(_publishing) = self.publishing.try_lock() else { return Ok(()) };
        let running = self.node.running();
        let rules = publish_rules(&self.node, &running).await?;
        let channels = publish_channels(&self.node, &running).await?;
        if rules + channels > 0 {
            tracing::info!(
                channels,
                rules,
                "No living node runs the channels and limits that were published last: this node published its own again"
            );
        }
        self.seen = Some(mark);
        Ok(())
    }
}
